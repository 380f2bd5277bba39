/// Memory of a backend and two-dimensional views of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace ts {

/// f32 memory owned by a backend. host() is null where the host cannot address it.
class Buffer {
 public:
  virtual ~Buffer() = default;
  virtual size_t n_floats() const = 0;
  virtual float* host() = 0;
};

/// rows x cols view; consecutive rows are `stride` elements apart. Does not own the buffer.
struct Mat {
  Buffer* buffer = nullptr;
  size_t offset = 0;  ///< elements
  int64_t rows = 0, cols = 0, stride = 0;

  float* row(int64_t r) const { return buffer->host() + offset + static_cast<size_t>(r * stride); }
  /// Rows [begin, begin + count).
  Mat slice_rows(int64_t begin, int64_t count) const {
    return {buffer, offset + static_cast<size_t>(begin * stride), count, cols, stride};
  }
  /// Columns [begin, begin + count).
  Mat slice_cols(int64_t begin, int64_t count) const {
    return {buffer, offset + static_cast<size_t>(begin), rows, count, stride};
  }
};

}  // namespace ts
