// The AVX2 kernels as one overlay. Needs AVX2 and F16C.
#include "kernels/isa_tables.h"
#include "kernels/x86/avx2/avx2_kernels.h"

namespace ts {

void overlay_avx2(KernelTable* table) {
  avx2::set_int_formats(table);
  avx2::set_int_tile(table);
  avx2::set_float_products(table);
  avx2::set_elementwise(table);
  avx2::set_delta_rule(table);
  avx2::set_hadamard(table);
  avx2::set_packing(table);
  avx2::set_packed_products(table);
  avx2::set_triples(table);
  avx2::set_small_groups(table);
}

}  // namespace ts
