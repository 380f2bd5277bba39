#define TS_EMULATE_ISA
#define avx512_vnni emulated_avx512_vnni
#include "kernels/x86/avx512_vnni/packed_products.cc"
