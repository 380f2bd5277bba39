#include "hadamard/transform.h"

#include <bit>

namespace ts {
namespace {

/// (a, b) -> (a + b, a - b) for two rows apart, so that the compiler may use vectors.
template <typename T>
inline void butterfly(T* __restrict a, T* __restrict b, size_t n) noexcept {
  for (size_t j = 0; j < n; ++j) {
    const T sum = a[j] + b[j], difference = a[j] - b[j];
    a[j] = sum;
    b[j] = difference;
  }
}

/// The levels below kSize of one run of kSize elements, in registers.
template <size_t kSize, typename T>
inline void short_levels(T* x) noexcept {
  T v[kSize];
  for (size_t i = 0; i < kSize; ++i)
    v[i] = x[i];
#pragma GCC unroll 4
  for (size_t half = 1; half < kSize; half *= 2) {
#pragma GCC unroll 16
    for (size_t i = 0; i < kSize; ++i) {
      if (i & half) continue;
      const T a = v[i], b = v[i + half];
      v[i] = a + b;
      v[i + half] = a - b;
    }
  }
  for (size_t i = 0; i < kSize; ++i)
    x[i] = v[i];
}

template <typename T>
void butterflies(T* x, size_t n, size_t block) noexcept {
  constexpr size_t kShort = 8;
  size_t first = 1;
  if (block >= kShort) {
    for (size_t i = 0; i < n; i += kShort)
      short_levels<kShort>(x + i);
    first = kShort;
  }
  for (T* end = x + n; x != end; x += block) {
    for (size_t half = first; half < block; half *= 2) {
      for (T* base = x; base != x + block; base += 2 * half)
        butterfly(base, base + half, half);
    }
  }
}

}  // namespace

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

}  // namespace ts
