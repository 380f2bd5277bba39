#include "backend/cpu/quantized_rows.h"

#include <algorithm>
#include <new>

namespace ts {
namespace {

/// Entries per row of an array with one entry per group: a multiple of 16 (a cache line) with at
/// least 8 zeros of padding.
size_t padded(size_t n) {
  return (n + 8 + 15) / 16 * 16;
}

template <typename T>
void grow(AlignedBuffer<T>& buffer, size_t count) {
  if (buffer.size() >= count) return;
  buffer = AlignedBuffer<T>();  // free first: old and new never exist together
  buffer = AlignedBuffer<T>(count);
}

}  // namespace

void QuantizedRows::reserve(size_t n_rows, size_t k, size_t group, size_t table_bytes) {
  const size_t code_stride = (k + 63) / 64 * 64 + 64;
  const size_t group_stride = padded((k + group - 1) / group);
  // A short last group still writes all of its 16-element parts.
  const size_t group16_stride = group == 32 ? padded((k + 31) / 32 * 2) : 0;
  const size_t floats = 2 * (group_stride + group16_stride);
  const size_t ints = group_stride + group16_stride;
  if (n_rows > SIZE_MAX / 4 / (code_stride + 4 * floats)) throw std::bad_alloc();
  if (rows_.size() >= n_rows && k_ == k && group_ == group) {
    set_tables(n_rows, table_bytes);
    return;
  }
  if (k_ != k || group_ != group) {
    // Another shape: paddings move, so all arrays are made afresh (they start as zeros).
    codes_ = {};
    interleaved_ = {};
    floats_ = {};
    ints_ = {};
  }
  rows_.clear();
  grow(codes_, n_rows * code_stride);
  if (group == 128) grow(interleaved_, n_rows * code_stride);
  grow(floats_, n_rows * floats);
  grow(ints_, n_rows * ints);
  k_ = k;
  group_ = group;
  code_stride_ = code_stride;
  group_stride_ = group_stride;
  group16_stride_ = group16_stride;
  rows_.resize(n_rows);
  for (size_t r = 0; r < n_rows; ++r) {
    float* f = floats_.data() + r * floats;
    int32_t* i = ints_.data() + r * ints;
    const bool has16 = group16_stride > 0;
    rows_[r] = {codes_.data() + r * code_stride,
                f,
                i,
                f + group_stride,
                has16 ? f + 2 * group_stride : nullptr,
                has16 ? i + group_stride : nullptr,
                has16 ? f + 2 * group_stride + group16_stride : nullptr,
                group == 128 ? interleaved_.data() + r * code_stride : nullptr,
                nullptr};
  }
  set_tables(n_rows, table_bytes);
}

/// Tables for n_rows rows if they are few, else for none: those of other rows would be old.
void QuantizedRows::set_tables(size_t n_rows, size_t table_bytes) {
  table_bytes_ = table_bytes;
  const size_t n = table_bytes > 0 && n_rows <= kTableColumns ? n_rows : 0;
  const size_t stride = k_ / group_ * table_bytes;
  grow(tables_, n * stride);
  for (size_t r = 0; r < std::min(rows_.size(), kTableColumns); ++r)
    rows_[r].tables = r < n ? tables_.data() + r * stride : nullptr;
}

void QuantizedRows::fill(const KernelTable& table, size_t row, size_t begin, size_t count,
                         const float* x) noexcept {
  const ActRow& r = rows_[row];
  const size_t g = begin / group_;
  const bool has16 = r.scale16 != nullptr;
  const ActRowOut out = {const_cast<int8_t*>(r.q) + begin,
                         const_cast<float*>(r.scale) + g,
                         const_cast<int32_t*>(r.isum) + g,
                         const_cast<float*>(r.fsum) + g,
                         has16 ? const_cast<float*>(r.scale16) + begin / 16 : nullptr,
                         has16 ? const_cast<int32_t*>(r.isum16) + begin / 16 : nullptr,
                         has16 ? const_cast<float*>(r.fsum16) + begin / 16 : nullptr};
  table.quantize_row(x, count, group_, &out);
  if (r.q4) table.interleave4(r.q + begin, count, const_cast<int8_t*>(r.q4) + begin);
  if (r.tables)
    table.make_tables(r.q + begin, count, const_cast<int8_t*>(r.tables) + g * table_bytes_);
}

}  // namespace ts
