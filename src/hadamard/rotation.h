/// The rotation R = H S P of one width: an optional permutation of whole heads, then signs, then
/// the blockwise Walsh-Hadamard transform (transform.h).
///
/// A weight row w stored rotated is w' = R w; then w' . (R x) = w . x for every x, because R is
/// orthogonal. What a file declares as rotated is read in model/hadamard_contract.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace ts {

/// The two orders of the value heads of a linear-attention layer. The forward pass makes them
/// *tiled*: head r * n_key_heads + k belongs to key head k. Some matrices were rotated over
/// *grouped* heads, k * repeats + r. Heads of head_dim elements move as a whole.
struct GroupedHeads {
  int64_t n_key_heads = 0, repeats = 0, head_dim = 0;
  int64_t width() const noexcept { return n_key_heads * repeats * head_dim; }
  bool operator==(const GroupedHeads&) const = default;
};

/// Immutable.
class Rotation {
 public:
  /// `signs`: +1 or -1 per element of the width; empty = all +1.
  /// Errors: HadamardDimensionError, InvalidArgument (see require_block(); signs that are not one
  /// +1 or -1 per element; heads that do not fill the width).
  Rotation(int64_t width, int64_t block, std::span<const int8_t> signs = {},
           std::optional<GroupedHeads> grouped = std::nullopt);

  int64_t width() const noexcept { return width_; }
  int64_t block() const noexcept { return block_; }
  float factor() const noexcept { return factor_; }
  /// Per element 0x80000000 where the sign is -1, else 0; null when all are +1.
  const uint32_t* flips() const noexcept { return flips_.empty() ? nullptr : flips_.data(); }
  const std::optional<GroupedHeads>& grouped() const noexcept { return grouped_; }
  /// Differs between any two rotations made in this process; never 0.
  uint64_t id() const noexcept { return id_; }

  /// y [count] = elements [begin, begin + count) of P x, x [width] in tiled order; a copy when
  /// there is no permutation. x and y must not overlap.
  void gather(const float* x, size_t begin, size_t count, float* y) const noexcept;

  /// y = R x: permute, signs, transform. The reference; x and y [width] must not overlap.
  void forward(const float* x, float* y) const noexcept;
  /// y = S H x: transform, signs. Undoes forward() but for the permutation, whose order stays.
  /// x and y may be the same.
  void inverse(const float* x, float* y) const noexcept;
  /// Replaces a weight row [width], in the order of the activation it is multiplied with, by R w,
  /// computed in double precision.
  void fold_row(std::span<double> row) const;

 private:
  int64_t width_, block_;
  float factor_;
  uint64_t id_;
  std::vector<uint32_t> flips_;
  std::optional<GroupedHeads> grouped_;
};

}  // namespace ts
