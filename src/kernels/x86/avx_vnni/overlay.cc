// The AVX-VNNI kernels (VEX-encoded dpbusd; CPUs without AVX-512): direct products, and products of
// tiles of two-bit codes. The rest is AVX2's. See vnni_gemv.inc for idea and exactness.
// Not measured: no machine with AVX-VNNI was at hand; checked under emulation.
#include "kernels/isa_tables.h"
#include "kernels/x86/avx_vnni/avx_vnni_kernels.h"
#include "kernels/x86/intrinsics.h"

namespace ts {
namespace {

#include "kernels/x86/avx_vnni/dpbusd.inc"
#include "kernels/x86/vnni_gemv.inc"

}  // namespace

void overlay_avx_vnni(KernelTable* table) {
  set_gemv(table);
  avx_vnni::set_packed_products(table);
}

}  // namespace ts
