/// What the AVX-512 VNNI files offer to overlay.cc. Declarations only.
#pragma once

#include "kernels/kernel_table.h"

namespace ts::avx512_vnni {

void set_int_gemv(KernelTable* table);         // int_gemv.cc
void set_int_tile(KernelTable* table);         // int_tile.cc
void set_hadamard(KernelTable* table);         // hadamard.cc
void set_packed_products(KernelTable* table);  // packed_products.cc; tiles are packed as for AVX2

}  // namespace ts::avx512_vnni
