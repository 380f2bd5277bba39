// 8-bit matrix products (FEAT_I8MM, Armv8.6): for several activation rows at a time. Everything
// else stays NEON with dot products.
#include "kernels/arm/i8mm/i8mm_kernels.h"
#include "kernels/isa_tables.h"

namespace ts {

void overlay_i8mm(KernelTable* table) {
  i8mm::set_int_tile(table);
  i8mm::set_packed_products(table);
}

}  // namespace ts
