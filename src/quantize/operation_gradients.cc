#include "quantize/operation_gradients.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include <tensorsharp/error.hpp>

#include "quantize/blas.h"

namespace ts {
namespace {

/// Inputs whose gradient is computed in one piece.
constexpr int64_t kPieceColumns = 96;

/// The unit's value and its derivative.
struct UnitValue {
  float value, slope;
};

UnitValue unit_value(GatedUnit unit, float x) noexcept {
  if (unit == GatedUnit::kGeluTanh) {
    constexpr float kRootTwoOverPi = 0.7978845608F, kCubic = 0.044715F;
    const float t = std::tanh(kRootTwoOverPi * (x + kCubic * x * x * x));
    const float inner = kRootTwoOverPi * (1 + 3 * kCubic * x * x);
    return {0.5F * x * (1 + t), 0.5F * (1 + t) + 0.5F * x * (1 - t * t) * inner};
  }
  const float s = 1 / (1 + std::exp(-x));
  if (unit == GatedUnit::kSigmoid) return {s, s * (1 - s)};
  return {x * s, s * (1 + x * (1 - s))};
}

}  // namespace

AttentionShape attention_shape(const AttentionArgs& args) noexcept {
  AttentionShape shape;
  shape.n_tokens = args.q.rows;
  shape.n_heads = args.n_heads;
  shape.head_dim = args.q.cols / args.n_heads;
  shape.n_kv_heads = args.k.cols / shape.head_dim;
  shape.scale = args.scale;
  shape.window = args.window;
  return shape;
}

void attention_shares(const AttentionShape& a, const float* q, int64_t q_stride, const float* k,
                      int64_t k_stride, float* p) {
  const int64_t n = a.n_tokens;
  blas::gemm_bt(n, n, a.head_dim, a.scale, q, q_stride, k, k_stride, 0.0F, p, n);
  for (int64_t i = 0; i < n; ++i) {
    float* row = p + i * n;
    const int64_t first = a.window > 0 ? std::max<int64_t>(0, i - a.window + 1) : 0;
    std::fill(row, row + first, 0.0F);
    std::fill(row + i + 1, row + n, 0.0F);
    const float most = *std::max_element(row + first, row + i + 1);
    float sum = 0;
    for (int64_t j = first; j <= i; ++j) {
      row[j] = std::exp(row[j] - most);
      sum += row[j];
    }
    for (int64_t j = first; j <= i; ++j)
      row[j] /= sum;
  }
}

void rms_norm_gradient(std::span<const float> x, std::span<const float> w, float eps,
                       std::span<const float> dy, std::span<float> dx, std::span<double> dw) {
  const size_t group = w.size();
  if (group == 0 || x.size() % group != 0 || dy.size() != x.size() || dx.size() != x.size())
    throw InternalError("sizes of a norm's gradient do not fit");
  for (size_t at = 0; at < x.size(); at += group) {
    double squares = 0, product = 0;
    for (size_t i = 0; i < group; ++i) {
      squares += static_cast<double>(x[at + i]) * x[at + i];
      product += static_cast<double>(dy[at + i]) * w[i] * x[at + i];
    }
    const double count = static_cast<double>(group);
    const double factor = 1 / std::sqrt(squares / count + static_cast<double>(eps));
    const double along = product * factor * factor * factor / count;
    for (size_t i = 0; i < group; ++i) {
      dx[at + i] +=
          static_cast<float>(static_cast<double>(dy[at + i]) * w[i] * factor - along * x[at + i]);
      if (!dw.empty()) dw[i] += static_cast<double>(dy[at + i]) * x[at + i] * factor;
    }
  }
}

void rope_gradient(std::span<float> d, int64_t n_heads, int64_t head_dim, int64_t first_position,
                   const Rope& rope) {
  const auto n_pairs = static_cast<int64_t>(rope.inverse_frequency.size());
  const int64_t width = n_heads * head_dim;
  const int64_t n_rows = static_cast<int64_t>(d.size()) / width;
  for (int64_t r = 0; r < n_rows; ++r) {
    for (int64_t pair = 0; pair < n_pairs; ++pair) {
      const double angle = static_cast<double>(first_position + r) *
                           rope.inverse_frequency[static_cast<size_t>(pair)];
      const float c = static_cast<float>(std::cos(angle)) * rope.scale;
      const float s = static_cast<float>(std::sin(angle)) * rope.scale;
      const int64_t first = rope.half_split ? pair : 2 * pair;
      const int64_t second = rope.half_split ? pair + n_pairs : 2 * pair + 1;
      for (int64_t h = 0; h < n_heads; ++h) {
        float* head = d.data() + r * width + h * head_dim;
        const float a = head[first], b = head[second];
        head[first] = a * c + b * s;
        head[second] = b * c - a * s;
      }
    }
  }
}

void attention_gradient(const AttentionShape& a, const float* q, const float* k, const float* v,
                        const float* d_out, float* dq, float* dk, float* dv, ThreadPool& pool) {
  const int64_t n = a.n_tokens, dim = a.head_dim;
  const int64_t q_width = a.n_heads * dim, kv_width = a.n_kv_heads * dim;
  const int64_t share = a.n_heads / a.n_kv_heads;
  // Query heads that share keys add to the same gradients, so they stay together.
  pool.parallel_for(a.n_kv_heads, 1, [&](int64_t begin, int64_t end) {
    std::vector<float> p(static_cast<size_t>(n * n)), dp(p.size());
    for (int64_t kv = begin; kv < end; ++kv) {
      const float* key = k + kv * dim;
      const float* value = v + kv * dim;
      for (int64_t h = kv * share; h < (kv + 1) * share; ++h) {
        attention_shares(a, q + h * dim, q_width, key, kv_width, p.data());
        const float* dy = d_out + h * dim;
        blas::gemm_at(n, dim, n, 1.0F, p.data(), n, dy, q_width, 1.0F, dv + kv * dim, kv_width);
        blas::gemm_bt(n, n, dim, 1.0F, dy, q_width, value, kv_width, 0.0F, dp.data(), n);
        for (int64_t i = 0; i < n; ++i) {
          float* row = dp.data() + i * n;
          const float* shares = p.data() + i * n;
          float mean = 0;
          for (int64_t j = 0; j <= i; ++j)
            mean += row[j] * shares[j];
          for (int64_t j = 0; j < n; ++j)
            row[j] = shares[j] * (row[j] - mean);
        }
        blas::gemm(n, dim, n, a.scale, dp.data(), n, key, kv_width, 1.0F, dq + h * dim, q_width);
        blas::gemm_at(n, dim, n, a.scale, dp.data(), n, q + h * dim, q_width, 1.0F, dk + kv * dim,
                      kv_width);
      }
    }
  });
}

void gated_unit_gradient(GatedUnit unit, std::span<const float> gate, std::span<const float> up,
                         std::span<const float> d_out, std::span<float> d_gate,
                         std::span<float> d_up) {
  for (size_t i = 0; i < gate.size(); ++i) {
    const UnitValue u = unit_value(unit, gate[i]);
    d_gate[i] += d_out[i] * up[i] * u.slope;
    d_up[i] += d_out[i] * u.value;
  }
}

void linear_input_gradient(int64_t n_tokens, int64_t n_out, int64_t n_in, const float* dy,
                           const float* weight, float* dx, ThreadPool& pool) {
  pool.parallel_for((n_in + kPieceColumns - 1) / kPieceColumns, 1, [&](int64_t begin, int64_t end) {
    for (int64_t piece = begin; piece < end; ++piece) {
      const int64_t first = piece * kPieceColumns;
      blas::gemm(n_tokens, std::min(kPieceColumns, n_in - first), n_out, 1.0F, dy, n_out,
                 weight + first, n_in, 1.0F, dx + first, n_in);
    }
  });
}

}  // namespace ts
