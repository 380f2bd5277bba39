/// Keys and values of one attention layer in host memory.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backend/backend.h"
#include "base/page_buffer.h"
#include "kernels/kernel_table.h"

namespace ts {

/// One position is a row of n_kv_heads * head_dim elements. f32 and f16 rows are plain arrays; a q8
/// row holds int8 codes, then one f32 scale per 32 elements of each head (a last short group has
/// its own), rounded up to whole 4 bytes.
class CpuKvCache final : public KvCache {
 public:
  /// Throws std::bad_alloc, also when the size overflows.
  CpuKvCache(const KvShape& shape, KvType type, bool huge_pages);

  int64_t capacity() const override { return shape_.capacity; }
  uint64_t bytes() const override { return 2 * capacity_rows() * row_bytes_; }
  const KvShape& shape() const noexcept { return shape_; }
  KvType type() const noexcept { return type_; }
  size_t row_bytes() const noexcept { return row_bytes_; }
  std::byte* k_row(size_t position) noexcept { return pages_.data() + position * row_bytes_; }
  std::byte* v_row(size_t position) noexcept {
    return pages_.data() + (capacity_rows() + position) * row_bytes_;
  }
  const std::byte* k_row(size_t position) const noexcept {
    return pages_.data() + position * row_bytes_;
  }
  const std::byte* v_row(size_t position) const noexcept {
    return pages_.data() + (capacity_rows() + position) * row_bytes_;
  }

  /// Stores one row of f32 values in the cache's type.
  void store(const KernelTable& table, const float* x, std::byte* row) const;
  /// f32 values of `n` rows of one head: dst [n, head_dim].
  void load(const KernelTable& table, const std::byte* first_row, size_t head, size_t n,
            float* dst) const;

 private:
  size_t capacity_rows() const noexcept { return static_cast<size_t>(shape_.capacity); }
  KvShape shape_;
  KvType type_;
  size_t row_bytes_ = 0, head_scales_ = 0;
  PageBuffer pages_;
};

}  // namespace ts
