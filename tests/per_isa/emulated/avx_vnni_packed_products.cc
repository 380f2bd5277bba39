#define TS_EMULATE_ISA
#define avx_vnni emulated_avx_vnni
#include "kernels/x86/avx_vnni/packed_products.cc"
