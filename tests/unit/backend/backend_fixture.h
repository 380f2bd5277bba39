/// Helpers of the backend tests: deterministic random data, matrices and weights.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "backend/cpu/cpu_backend.h"
#include "codec/codec.h"

namespace ts::testing_backend {

inline std::vector<float> random_floats(size_t n, uint32_t seed, float deviation = 1.0F) {
  std::mt19937 rng(seed);
  std::normal_distribution<float> normal(0.0F, deviation);
  std::vector<float> out(n);
  for (float& v : out)
    v = normal(rng);
  return out;
}

/// A matrix with memory of its own; NaN-filled, so that an element nobody writes is seen.
struct Matrix {
  std::shared_ptr<Buffer> buffer;
  Mat mat;

  Matrix(Backend& backend, int64_t rows, int64_t cols, int64_t extra_stride = 0)
      : buffer(backend.allocate(static_cast<size_t>(rows * (cols + extra_stride)), "test")),
        mat{buffer.get(), 0, rows, cols, cols + extra_stride} {
    std::fill_n(buffer->host(), buffer->n_floats(), std::nanf(""));
  }
  Matrix(Backend& backend, int64_t rows, int64_t cols, const std::vector<float>& values)
      : Matrix(backend, rows, cols) {
    std::copy(values.begin(), values.end(), buffer->host());
  }
  std::vector<float> values() const {
    std::vector<float> out;
    for (int64_t r = 0; r < mat.rows; ++r)
      out.insert(out.end(), mat.row(r), mat.row(r) + mat.cols);
    return out;
  }
};

/// Valid packed bytes of any codec: random where every pattern is valid, with sane f16 scales.
inline std::vector<std::byte> random_blocks(const Codec& codec, size_t rows, size_t cols,
                                            uint32_t seed) {
  std::vector<std::byte> out(rows * codec.row_bytes(cols));
  if (codec.encode) {
    const std::vector<float> x = random_floats(rows * cols, seed, 0.05F);
    codec.encode(x.data(), out.data(), x.size());
    return out;
  }
  // Read-only formats: random bytes; the f16 scales (at the end of each block in Q2_K and Q3_K,
  // in front in Q5_K) get small positive values.
  std::mt19937 rng(seed);
  for (auto& b : out)
    b = static_cast<std::byte>(rng() & 255);
  const auto scale_at = [&](size_t block, size_t offset) {
    const uint16_t half = static_cast<uint16_t>(0x1400 + rng() % 0x400);
    std::memcpy(out.data() + block * codec.block_bytes + offset, &half, 2);
  };
  for (size_t b = 0; b < out.size() / codec.block_bytes; ++b) {
    if (codec.id == TypeId::kQ2_K) {
      scale_at(b, 80);
      scale_at(b, 82);
    } else if (codec.id == TypeId::kQ3_K) {
      scale_at(b, 108);
    } else if (codec.id == TypeId::kQ5_K) {
      scale_at(b, 0);
      scale_at(b, 2);
    }
  }
  return out;
}

struct PackedMatrix {
  std::shared_ptr<std::vector<std::byte>> bytes;
  std::shared_ptr<const Weight> weight;
  std::vector<double> decoded;  ///< [rows, cols]
};

inline PackedMatrix random_weight(Backend& backend, const Codec& codec, int64_t rows, int64_t cols,
                                  uint32_t seed) {
  PackedMatrix out;
  out.bytes = std::make_shared<std::vector<std::byte>>(
      random_blocks(codec, static_cast<size_t>(rows), static_cast<size_t>(cols), seed));
  std::vector<float> values(static_cast<size_t>(rows * cols));
  codec.decode(out.bytes->data(), values.data(), values.size());
  out.decoded.assign(values.begin(), values.end());
  TensorView view;
  view.name = std::string(codec.name);
  view.type = codec.id;
  view.shape = {cols, rows};
  view.data = *out.bytes;
  out.weight = backend.upload(view, out.bytes);
  return out;
}

/// Root mean square error relative to that of the true results.
inline double relative_error(const std::vector<float>& got, const std::vector<double>& want) {
  double error = 0, power = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    error += (static_cast<double>(got[i]) - want[i]) * (static_cast<double>(got[i]) - want[i]);
    power += want[i] * want[i];
  }
  return std::sqrt(error / power);
}

/// Codecs that can be weights of a product.
inline std::vector<const Codec*> product_codecs() {
  std::vector<const Codec*> out;
  for (const Codec* codec : all_codecs()) {
    switch (codec->id) {
      case TypeId::kI8:
      case TypeId::kI16:
      case TypeId::kI32:
      case TypeId::kI64:
      case TypeId::kF64:
        break;
      default:
        out.push_back(codec);
    }
  }
  return out;
}

}  // namespace ts::testing_backend
