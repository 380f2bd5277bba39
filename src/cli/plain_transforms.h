/// Other transforms of real vectors, for comparing the Hadamard transform's speed with: written
/// plainly, in loops that compilers vectorize, without any processor's special instructions.
#pragma once

#include <cstddef>
#include <vector>

namespace ts::cli {

/// Fourier and cosine transforms of n real values, n a power of two of at least 4.
class PlainTransforms {
 public:
  explicit PlainTransforms(size_t n);
  /// The spectrum at frequencies 0 .. n / 2 (real and imaginary parts): a complex transform of half
  /// the length, Stockham's form with radix 2, then one pass (Press et al., Numerical
  /// Recipes 12.3).
  void fourier(const float* x, float* real, float* imaginary);
  /// y[k] = sum of x[i] cos(pi (2 i + 1) k / 2 n), DCT-II, through the Fourier transform of the
  /// reordered values (Makhoul 1980, "A fast cosine transform in one and two dimensions").
  void cosine(const float* x, float* y);

 private:
  size_t n_;
  std::vector<float> twiddle_cos_, twiddle_sin_;  ///< stage after stage
  std::vector<float> split_cos_, split_sin_;      ///< e^(-2 pi i k / n)
  std::vector<float> shift_cos_, shift_sin_;      ///< e^(-pi i k / 2 n)
  std::vector<float> a_real_, a_imaginary_, b_real_, b_imaginary_, ordered_;
  std::vector<float> real_, imaginary_;
};

}  // namespace ts::cli
