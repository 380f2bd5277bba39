// The kernels for NEON with dot products (FEAT_DotProd, Armv8.2) as one overlay. The delta rule
// stays that of the reference table, whose vectors are NEON registers already.
#include "kernels/arm/neon_dotprod/neon_kernels.h"
#include "kernels/isa_tables.h"

namespace ts {

void overlay_neon_dotprod(KernelTable* table) {
  neon_dotprod::set_int_formats(table);
  neon_dotprod::set_int_tile(table);
  neon_dotprod::set_float_products(table);
  neon_dotprod::set_elementwise(table);
  neon_dotprod::set_hadamard(table);
  neon_dotprod::set_packing(table);
  neon_dotprod::set_packed_products(table);
}

}  // namespace ts
