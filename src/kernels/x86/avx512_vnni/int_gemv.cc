// Direct products of packed rows with one activation row, 256 bits wide with the EVEX form of
// dpbusd: these kernels wait for memory, and 256-bit code does not lower the clock of older CPUs.
// See vnni_gemv.inc for idea and exactness.
// Not measured: no machine with AVX-512 was at hand; checked under emulation.
#include "kernels/x86/avx512_vnni/avx512_vnni_kernels.h"
#include "kernels/x86/intrinsics.h"

namespace ts::avx512_vnni {
namespace {

#define TS_DPBUSD(sum, codes, q) _mm256_dpbusd_epi32(sum, codes, q)
#include "kernels/x86/vnni_gemv.inc"

}  // namespace

void set_int_gemv(KernelTable* table) {
  set_gemv(table);
}

}  // namespace ts::avx512_vnni
