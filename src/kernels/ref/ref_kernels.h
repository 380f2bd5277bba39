/// The reference kernels: portable code that defines the numbers of every operation.
#pragma once

#include "kernels/kernel_table.h"

namespace ts::ref {

void set_unpackers(KernelTable& table);
void set_products(KernelTable& table);
void set_elementwise(KernelTable& table);
void set_delta_rule(KernelTable& table);
void set_hadamard(KernelTable& table);

}  // namespace ts::ref
