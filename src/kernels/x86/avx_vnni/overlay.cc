// The AVX-VNNI kernels (VEX-encoded dpbusd; CPUs without AVX-512): direct products. The rest is
// AVX2's. See vnni_gemv.inc for idea and exactness.
// Not measured: no machine with AVX-VNNI was at hand; checked under emulation.
#include "kernels/isa_tables.h"
#include "kernels/x86/intrinsics.h"

namespace ts {
namespace {

#if defined(TS_EMULATE_ISA)
#define TS_DPBUSD(sum, codes, q) _mm256_dpbusd_epi32(sum, codes, q)
#else
#define TS_DPBUSD(sum, codes, q) _mm256_dpbusd_avx_epi32(sum, codes, q)
#endif
#include "kernels/x86/vnni_gemv.inc"

}  // namespace

void overlay_avx_vnni(KernelTable* table) {
  set_gemv(table);
}

}  // namespace ts
