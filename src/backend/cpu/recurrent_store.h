/// Recurrent state of one gated-delta-rule layer in host memory.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backend/backend.h"
#include "base/page_buffer.h"
#include "kernels/kernel_table.h"

namespace ts {

/// Layout in f32, one piece of memory:
///   matrices     [n_v_heads][n_blocks][head_dim key elements][kDeltaWidth value elements]
///   conv history [conv_kernel - 1][conv_channels], oldest row first
/// A matrix is cut into blocks of kDeltaWidth value elements (the last one padded with zeros): the
/// value elements of a head never mix, so that a block is a unit of work that stays in the
/// first-level cache, and it is read and written front to back.
class CpuRecurrentState final : public RecurrentState {
 public:
  /// Throws std::bad_alloc, also when the size overflows. The shape's numbers are positive.
  CpuRecurrentState(const RecurrentShape& shape, bool huge_pages);

  const RecurrentShape& shape() const override { return shape_; }
  uint64_t bytes() const override { return n_floats_ * sizeof(float); }
  float* data() noexcept { return reinterpret_cast<float*>(pages_.data()); }
  const float* data() const noexcept { return reinterpret_cast<const float*>(pages_.data()); }
  /// Blocks of one head.
  int64_t n_blocks() const noexcept { return n_blocks_; }
  /// One block of a head's matrix: [head_dim][kDeltaWidth].
  float* block(int64_t head, int64_t index) noexcept {
    return data() + static_cast<size_t>((head * n_blocks_ + index) * shape_.head_dim) * kDeltaWidth;
  }
  /// [conv_kernel - 1][conv_channels].
  float* history() noexcept { return data() + matrix_floats_; }
  /// All zero, without touching pages that were never used.
  void clear();

 private:
  RecurrentShape shape_;
  int64_t n_blocks_ = 0;
  size_t matrix_floats_ = 0, n_floats_ = 0;
  PageBuffer pages_;
};

}  // namespace ts
