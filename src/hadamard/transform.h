/// The blockwise Walsh-Hadamard transform: the definition every kernel reproduces bit for bit.
///
/// H is the B x B matrix H[r][c] = (-1)^popcount(r AND c) / sqrt(B) (Sylvester's construction,
/// natural order). It is symmetric and its own inverse. A row of n elements is n / B independent
/// blocks.
///
/// Order of operations, normative in f32: for half = 1, 2, 4, ... < B replace every pair
/// (a[j], a[j + half]) by (a[j] + a[j + half], a[j] - a[j + half]); then multiply every element by
/// transform_factor(B). Another order computes the same matrix with other roundings.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace ts {

/// Largest block the transform accepts. (1 is accepted, too: H = [1].)
inline constexpr int64_t kMaxTransformBlock = 8192;

/// A power of two from 1 to kMaxTransformBlock.
bool is_transform_block(int64_t block) noexcept;

/// 1 / sqrt(block), rounded once to f32.
float transform_factor(int64_t block) noexcept;

/// x [n] = H x in place; n is a multiple of block, block is_transform_block().
void transform_blocks(float* x, size_t n, size_t block) noexcept;
/// The same in double precision, for converters and tests.
void transform_blocks(double* x, size_t n, size_t block) noexcept;

/// Block sizes from 2 to kMaxTransformBlock that divide `width`, largest first.
std::vector<int64_t> fitting_blocks(int64_t width);

/// Checks a block size given by a caller: HadamardDimensionError when it does not divide `width`
/// (naming `what`, the width and the blocks that fit), InvalidArgument when it is no block at all.
void require_block(int64_t width, int64_t block, std::string_view what);

}  // namespace ts
