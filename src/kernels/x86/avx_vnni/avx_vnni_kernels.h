/// What the AVX-VNNI files offer to overlay.cc. Declarations only.
#pragma once

#include "kernels/kernel_table.h"

namespace ts::avx_vnni {

void set_packed_products(KernelTable* table);  // packed_products.cc; tiles are packed as for AVX2

}  // namespace ts::avx_vnni
