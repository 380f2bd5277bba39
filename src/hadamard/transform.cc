#include "hadamard/transform.h"

#include <bit>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <tensorsharp/error.hpp>

namespace ts {
namespace {

template <typename T>
void butterflies(T* x, size_t n, size_t block) noexcept {
  for (T* end = x + n; x != end; x += block) {
    for (size_t half = 1; half < block; half *= 2) {
      for (size_t base = 0; base < block; base += 2 * half) {
        for (size_t j = base; j < base + half; ++j) {
          const T a = x[j], b = x[j + half];
          x[j] = a + b;
          x[j + half] = a - b;
        }
      }
    }
  }
}

}  // namespace

bool is_transform_block(int64_t block) noexcept {
  return block >= 1 && block <= kMaxTransformBlock &&
         std::has_single_bit(static_cast<uint64_t>(block));
}

float transform_factor(int64_t block) noexcept {
  const int log2 = std::countr_zero(static_cast<uint64_t>(block));
  // An even power of two has an exact root; scaling the rounded root of 1/2 by one is exact, too.
  float factor = log2 % 2 == 0 ? 1.0F : 0.707106781186547524F;
  for (int i = 0; i < log2 / 2; ++i)
    factor *= 0.5F;
  return factor;
}

void transform_blocks(float* x, size_t n, size_t block) noexcept {
  butterflies(x, n, block);
  const float factor = transform_factor(static_cast<int64_t>(block));
  for (size_t i = 0; i < n; ++i)
    x[i] = x[i] * factor;
}

void transform_blocks(double* x, size_t n, size_t block) noexcept {
  butterflies(x, n, block);
  const int log2 = std::countr_zero(block);
  double factor = log2 % 2 == 0 ? 1.0 : 0.707106781186547524400844362104849;
  for (int i = 0; i < log2 / 2; ++i)
    factor *= 0.5;
  for (size_t i = 0; i < n; ++i)
    x[i] = x[i] * factor;
}

std::vector<int64_t> fitting_blocks(int64_t width) {
  std::vector<int64_t> blocks;
  for (int64_t block = kMaxTransformBlock; block >= 2; block /= 2) {
    if (width > 0 && width % block == 0) blocks.push_back(block);
  }
  return blocks;
}

void require_block(int64_t width, int64_t block, std::string_view what) {
  if (!is_transform_block(block))
    throw InvalidArgument(
        fmt::format("{}: a transform block of {} is not a power of two from 1 to {}", what, block,
                    kMaxTransformBlock));
  if (width > 0 && width % block == 0) return;
  std::vector<int64_t> fits = fitting_blocks(width);
  const std::string advice = fits.empty() ? std::string("no power of two does")
                                          : fmt::format("use one of {}", fmt::join(fits, ", "));
  throw HadamardDimensionError(
      fmt::format("{}: a transform block of {} does not divide the width {}; {}", what, block,
                  width, advice),
      std::move(fits));
}

}  // namespace ts
