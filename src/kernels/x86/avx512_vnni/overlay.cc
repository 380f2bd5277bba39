// The AVX-512 VNNI kernels as one overlay over AVX2. Needs AVX-512 F, BW, DQ, VL and VNNI.
#include "kernels/isa_tables.h"
#include "kernels/x86/avx2/avx2_kernels.h"
#include "kernels/x86/avx512_vnni/avx512_vnni_kernels.h"

namespace ts {

void overlay_avx512_vnni(KernelTable* table) {
  avx512_vnni::set_int_gemv(table);
  avx512_vnni::set_int_tile(table);
  avx512_vnni::set_hadamard(table);
  avx2::set_base3_packing(table);
  avx512_vnni::set_packed_products(table);
}

}  // namespace ts
