/// What the AVX2 files offer to overlay.cc. Declarations only: nothing here may become code in a
/// file without the -m flags.
#pragma once

#include "kernels/kernel_table.h"

namespace ts::avx2 {

void set_int_formats(KernelTable* table);      // int_formats.cc: unpack and direct products
void set_int_tile(KernelTable* table);         // int_tile.cc
void set_float_products(KernelTable* table);   // float_products.cc
void set_elementwise(KernelTable* table);      // elementwise.cc
void set_delta_rule(KernelTable* table);       // delta_rule.cc
void set_hadamard(KernelTable* table);         // hadamard.cc
void set_packing(KernelTable* table);          // packing.cc
void set_packed_products(KernelTable* table);  // packed_products.cc
void set_small_groups(KernelTable* table);     // small_groups.cc
void set_triples(KernelTable* table);          // triples.cc: replaces base 3 by tables
/// packing.cc: base 3 again, for instruction sets whose products read that.
void set_base3_packing(KernelTable* table);

}  // namespace ts::avx2
