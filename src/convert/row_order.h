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

/// Value heads of gated delta nets: checkpoints group the heads of a key head (value head p reads
/// key head p / repeats), GGUF tiles them (value head t reads key head t mod n_k_heads). The head
/// of the checkpoint that becomes head `head` of the GGUF tensor.
///   n_k_heads 2, repeats 3: 0 3 1 4 2 5
constexpr int64_t grouped_source_head(int64_t head, int64_t n_k_heads, int64_t repeats) noexcept {
  return head % n_k_heads * repeats + head / n_k_heads;
}

/// The way back: the head of the GGUF tensor that becomes head `head` of the checkpoint.
///   n_k_heads 2, repeats 3: 0 2 4 1 3 5
constexpr int64_t tiled_source_head(int64_t head, int64_t n_k_heads, int64_t repeats) noexcept {
  return head % repeats * n_k_heads + head / repeats;
}

/// The same for an index into `head_size` elements per head that follow `offset` others, which stay
/// where they are.
constexpr int64_t grouped_source_index(int64_t index, int64_t offset, int64_t head_size,
                                       int64_t n_k_heads, int64_t repeats) noexcept {
  if (index < offset) return index;
  const int64_t head = (index - offset) / head_size, within = (index - offset) % head_size;
  return offset + grouped_source_head(head, n_k_heads, repeats) * head_size + within;
}

}  // namespace ts
