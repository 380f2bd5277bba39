/// What the files for 8-bit matrix products offer to overlay.cc. Declarations only: nothing here
/// may become code in a file without the -march flag.
#pragma once

#include "kernels/kernel_table.h"

namespace ts::i8mm {

void set_int_tile(KernelTable* table);         // int_tile.cc
void set_packed_products(KernelTable* table);  // packed_products.cc

}  // namespace ts::i8mm
