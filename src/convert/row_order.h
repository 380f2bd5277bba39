/// Reorderings of rows between checkpoints and GGUF, as lookup functions: destination -> source.
#pragma once

#include <cstdint>

namespace ts {

/// Llama query and key rows: checkpoints pair row j of a head with row j + head_dim / 2, GGUF's
/// llama pairs rows 2j and 2j + 1. The row of the checkpoint that becomes row `row` of the GGUF
/// tensor. `head_dim` must be even.
///   head_dim 8, one head: 0 4 1 5 2 6 3 7
constexpr int64_t llama_source_row(int64_t row, int64_t head_dim) noexcept {
  const int64_t head = row / head_dim, within = row % head_dim;
  return head * head_dim + (within % 2) * (head_dim / 2) + within / 2;
}

/// The way back: the row of the GGUF tensor that becomes row `row` of the checkpoint.
///   head_dim 8, one head: 0 2 4 6 1 3 5 7
constexpr int64_t llama_gguf_row(int64_t row, int64_t head_dim) noexcept {
  const int64_t head = row / head_dim, within = row % head_dim;
  const int64_t half = head_dim / 2;
  return head * head_dim + 2 * (within % half) + within / half;
}

}  // namespace ts
