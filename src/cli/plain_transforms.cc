#include "cli/plain_transforms.h"

#include <cmath>
#include <numbers>
#include <utility>

namespace ts::cli {
namespace {

void add_rotation(double angle, std::vector<float>& cos, std::vector<float>& sin) {
  cos.push_back(static_cast<float>(std::cos(angle)));
  sin.push_back(static_cast<float>(std::sin(angle)));
}

/// One stage: pairs half the vector apart are added and subtracted, the difference rotated.
/// `stride` neighbours share one rotation.
void stage(const float* __restrict x, const float* __restrict xi, float* __restrict y,
           float* __restrict yi, const float* cos, const float* sin, size_t n_rotations,
           size_t stride) {
  const size_t half = n_rotations * stride;
  for (size_t p = 0; p < n_rotations; ++p) {
    const float c = cos[p], s = sin[p];
    const float *a = x + p * stride, *ai = xi + p * stride;
    const float *b = a + half, *bi = ai + half;
    float *sum = y + 2 * p * stride, *sum_i = yi + 2 * p * stride;
    float *difference = sum + stride, *difference_i = sum_i + stride;
    for (size_t q = 0; q < stride; ++q) {
      sum[q] = a[q] + b[q];
      sum_i[q] = ai[q] + bi[q];
      const float d = a[q] - b[q], di = ai[q] - bi[q];
      difference[q] = d * c - di * s;
      difference_i[q] = d * s + di * c;
    }
  }
}

}  // namespace

PlainTransforms::PlainTransforms(size_t n) : n_(n) {
  const double pi = std::numbers::pi;
  const size_t m = n / 2;
  for (size_t length = m; length > 1; length /= 2) {
    for (size_t p = 0; p < length / 2; ++p)
      add_rotation(-2 * pi * static_cast<double>(p) / static_cast<double>(length), twiddle_cos_,
                   twiddle_sin_);
  }
  for (size_t k = 0; k < m; ++k)
    add_rotation(-2 * pi * static_cast<double>(k) / static_cast<double>(n), split_cos_, split_sin_);
  for (size_t k = 0; k < n; ++k)
    add_rotation(-pi * static_cast<double>(k) / static_cast<double>(2 * n), shift_cos_, shift_sin_);
  for (auto* v : {&a_real_, &a_imaginary_, &b_real_, &b_imaginary_})
    v->resize(m);
  for (auto* v : {&real_, &imaginary_})
    v->resize(m + 1);
  ordered_.resize(n);
}

void PlainTransforms::fourier(const float* x, float* real, float* imaginary) {
  const size_t m = n_ / 2;
  for (size_t i = 0; i < m; ++i) {
    a_real_[i] = x[2 * i];
    a_imaginary_[i] = x[2 * i + 1];
  }
  float *a = a_real_.data(), *ai = a_imaginary_.data();
  float *b = b_real_.data(), *bi = b_imaginary_.data();
  size_t at = 0;
  for (size_t length = m, stride = 1; length > 1; length /= 2, stride *= 2) {
    stage(a, ai, b, bi, &twiddle_cos_[at], &twiddle_sin_[at], length / 2, stride);
    at += length / 2;
    std::swap(a, b);
    std::swap(ai, bi);
  }
  real[0] = a[0] + ai[0];
  imaginary[0] = 0;
  real[m] = a[0] - ai[0];
  imaginary[m] = 0;
  for (size_t k = 1; k < m; ++k) {
    const float even = (a[k] + a[m - k]) / 2, even_i = (ai[k] - ai[m - k]) / 2;
    const float odd = (ai[k] + ai[m - k]) / 2, odd_i = (a[m - k] - a[k]) / 2;
    const float c = split_cos_[k], s = split_sin_[k];
    real[k] = even + odd * c - odd_i * s;
    imaginary[k] = even_i + odd * s + odd_i * c;
  }
}

void PlainTransforms::cosine(const float* x, float* y) {
  const size_t m = n_ / 2;
  for (size_t i = 0; i < m; ++i) {
    ordered_[i] = x[2 * i];
    ordered_[n_ - 1 - i] = x[2 * i + 1];
  }
  fourier(ordered_.data(), real_.data(), imaginary_.data());
  for (size_t k = 0; k <= m; ++k)
    y[k] = real_[k] * shift_cos_[k] - imaginary_[k] * shift_sin_[k];
  // Frequencies above the middle are the conjugates of those below.
  for (size_t k = m + 1; k < n_; ++k)
    y[k] = real_[n_ - k] * shift_cos_[k] + imaginary_[n_ - k] * shift_sin_[k];
}

}  // namespace ts::cli
