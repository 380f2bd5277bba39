/// Rows of a weight matrix as f32, whatever they are stored as. Sources wrap each other: decoded,
/// then reordered, then changed.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "codec/codec.h"
#include "format/safetensors.h"

namespace ts {

class RowSource {
 public:
  RowSource(int64_t n_rows, int64_t n_cols) : n_rows_(n_rows), n_cols_(n_cols) {}
  virtual ~RowSource() = default;
  int64_t n_rows() const noexcept { return n_rows_; }
  int64_t n_cols() const noexcept { return n_cols_; }
  /// out: f32 [n_cols]; 0 <= row < n_rows.
  virtual void read_row(int64_t row, std::span<float> out) const = 0;
  /// Says that the bytes behind all rows are not needed any more.
  virtual void release() const noexcept {}

 private:
  int64_t n_rows_, n_cols_;
};

using RowSourcePtr = std::shared_ptr<const RowSource>;

/// Numbers of a safetensors file; `entry` must outlive the source.
RowSourcePtr safetensors_rows(const SafetensorsEntry& entry, int64_t n_rows, int64_t n_cols);
/// Packed blocks; the bytes must outlive the source.
RowSourcePtr codec_rows(const Codec& codec, std::span<const std::byte> data, int64_t n_rows,
                        int64_t n_cols);
/// Values computed here, as one row.
RowSourcePtr value_rows(std::vector<float> values);
/// Row r comes from the checkpoint's row for llama's rotary pairs (see row_order.h).
RowSourcePtr llama_pair_rows(RowSourcePtr inner, int64_t head_dim);
/// Row r is row source[r] of `inner`; one entry per row.
RowSourcePtr permuted_rows(RowSourcePtr inner, std::vector<int64_t> source);
/// Column c is column source[c] of `inner`; one entry per column.
RowSourcePtr permuted_columns(RowSourcePtr inner, std::vector<int64_t> source);
/// Adds 1 to every value, in f32.
RowSourcePtr plus_one_rows(RowSourcePtr inner);
/// -e^x of every value, in f32.
RowSourcePtr minus_exp_rows(RowSourcePtr inner);
/// Multiplies value (r, c) by scales[r / block_rows][c / block_cols], in f32.
RowSourcePtr block_scaled_rows(RowSourcePtr inner, std::vector<float> scales, int64_t block_rows,
                               int64_t block_cols);

/// Hints that mapped file pages inside `bytes` may be dropped from memory. `bytes` must belong to a
/// read-only file mapping.
void drop_pages(std::span<const std::byte> bytes) noexcept;

}  // namespace ts
