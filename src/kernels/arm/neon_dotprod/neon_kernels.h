/// What the files for NEON with dot products offer to overlay.cc. Declarations only: nothing here
/// may become code in a file without the -march flag.
#pragma once

#include "kernels/kernel_table.h"

namespace ts::neon_dotprod {

void set_int_formats(KernelTable* table);      // int_formats.cc: unpack and direct products
void set_int_tile(KernelTable* table);         // int_tile.cc
void set_float_products(KernelTable* table);   // float_products.cc
void set_elementwise(KernelTable* table);      // elementwise.cc
void set_hadamard(KernelTable* table);         // hadamard.cc
void set_packing(KernelTable* table);          // packing.cc
void set_packed_products(KernelTable* table);  // packed_products.cc

}  // namespace ts::neon_dotprod
