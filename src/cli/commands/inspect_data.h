/// The parts of `inspect` that read tensor data: statistics and raw blocks.
#pragma once

#include <cstdint>
#include <vector>

#include "cli/console.h"
#include "format/tensor_entry.h"

namespace ts::cli {

/// inspect --stats. `threads` 0 = automatic. Returns the exit status.
int show_statistics(Console& console, const std::vector<const TensorEntry*>& tensors, int threads);

/// inspect --hex: bytes and values of the first `n_blocks` blocks.
int show_blocks(Console& console, const TensorEntry& tensor, uint64_t n_blocks);

}  // namespace ts::cli
