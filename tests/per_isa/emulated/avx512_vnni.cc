#define TS_EMULATE_ISA
#define overlay_avx512_vnni emulated_overlay_avx512_vnni
#define avx512_vnni emulated_avx512_vnni
#include "kernels/x86/avx512_vnni/overlay.cc"
