/// Tensor dimensions in GGUF order: ne[0] is the fastest-varying one, the input width of a matrix.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>

#include "base/checked_math.h"

namespace ts {

struct Shape {
  static constexpr int kMaxDims = 4;

  std::array<int64_t, kMaxDims> ne{1, 1, 1, 1};
  int n_dims = 0;

  Shape() = default;
  Shape(std::initializer_list<int64_t> dims) {
    for (const int64_t d : dims)
      ne[static_cast<size_t>(n_dims++)] = d;
  }

  int64_t operator[](int i) const noexcept { return ne[static_cast<size_t>(i)]; }
  bool operator==(const Shape& other) const noexcept { return ne == other.ne; }
  /// Number of elements, or nothing on overflow or a negative dimension.
  std::optional<uint64_t> checked_elems() const noexcept {
    uint64_t total = 1;
    for (const int64_t d : ne) {
      if (d < 0) return std::nullopt;
      const auto next = checked_mul(total, static_cast<uint64_t>(d));
      if (!next || *next > static_cast<uint64_t>(INT64_MAX)) return std::nullopt;
      total = *next;
    }
    return total;
  }
  /// Number of elements of a shape already checked.
  int64_t n_elems() const noexcept { return ne[0] * ne[1] * ne[2] * ne[3]; }
  /// Number of rows of ne[0] elements.
  int64_t n_rows() const noexcept { return ne[1] * ne[2] * ne[3]; }
  /// "{64, 512}".
  std::string to_string() const {
    std::string out = "{";
    for (int i = 0; i < (n_dims > 0 ? n_dims : 1); ++i) {
      if (i > 0) out += ", ";
      out += std::to_string((*this)[i]);
    }
    return out + "}";
  }
};

}  // namespace ts
