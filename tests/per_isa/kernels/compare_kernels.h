/// Compares every kernel of a table with the reference, bit for bit, on random data, odd shapes and
/// extreme values. Shared by the test of this machine's instruction sets and by the emulated ones.
#pragma once

#include <cstdint>

#include "kernels/kernel_table.h"

namespace ts::per_isa {

/// Each reports through GoogleTest expectations; `isa` names the candidate in messages.
void compare_products(const KernelTable& candidate, const KernelTable& reference, const char* isa);
/// Repacked weights: every product and the rows read back.
void compare_packed(const KernelTable& candidate, const KernelTable& reference, const char* isa);
void compare_extremes(const KernelTable& candidate, const KernelTable& reference, const char* isa);
void compare_float_products(const KernelTable& candidate, const KernelTable& reference,
                            const char* isa);
void compare_quantizer(const KernelTable& candidate, const KernelTable& reference, const char* isa);
void compare_elementwise(const KernelTable& candidate, const KernelTable& reference,
                         const char* isa);
void compare_delta_rule(const KernelTable& candidate, const KernelTable& reference,
                        const char* isa);
void compare_transforms(const KernelTable& candidate, const KernelTable& reference,
                        const char* isa);
/// Every function is there; only int_gemv may be absent.
void expect_complete(const KernelTable& table, const char* isa);

}  // namespace ts::per_isa
