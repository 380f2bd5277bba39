/// Measures which way of computing a product is the fastest here, once per codec and shape.
#pragma once

#include <optional>

#include "backend/cpu/cpu_weight.h"
#include "backend/cpu/kernel_choices.h"
#include "base/thread_pool.h"
#include "kernels/kernels.h"

namespace ts {

/// Matrices below this size are not worth measuring: a piece of theirs takes microseconds.
constexpr size_t kSmallestTuned = size_t{1} << 20;

/// Products of part of a mapped weight with one row of activations, from the file's bytes and
/// (where `can_repack`) from tiles, in turns, and with pieces of several sizes; at most about 150
/// ms. Tiles win a draw: they read prompts faster. Empty when there was no time for fair turns, no
/// memory for the sample or no direct product to compare.
std::optional<KernelChoice> measure_kernels(const KernelTable& table, ThreadPool& pool,
                                            const CpuWeight& weight, bool can_repack,
                                            bool huge_pages);

}  // namespace ts
