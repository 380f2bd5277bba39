#define TS_EMULATE_ISA
#define overlay_avx_vnni emulated_overlay_avx_vnni
#define avx_vnni emulated_avx_vnni
#include "kernels/x86/avx_vnni/overlay.cc"
