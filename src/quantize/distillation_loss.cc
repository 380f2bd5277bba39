#include "quantize/distillation_loss.h"

#include <algorithm>
#include <cmath>

#include <tensorsharp/error.hpp>

#include "quantize/blas.h"

namespace ts {
namespace {

constexpr int64_t kRowsAtOnce = 64;
constexpr int64_t kPieceTokens = 1024;  // of the vocabulary
constexpr int64_t kGradientColumns = 96;

void compute_logits(std::span<const float> e, const float* x, int64_t rows, int64_t d,
                    std::vector<float>& logits, ThreadPool& pool) {
  const auto n_vocab = static_cast<int64_t>(e.size()) / d;
  logits.resize(static_cast<size_t>(rows * n_vocab));
  pool.parallel_for(
      (n_vocab + kPieceTokens - 1) / kPieceTokens, 1, [&](int64_t begin, int64_t end) {
        for (int64_t piece = begin; piece < end; ++piece) {
          const int64_t first = piece * kPieceTokens;
          blas::gemm_bt(rows, std::min(kPieceTokens, n_vocab - first), d, 1.0F, x, d,
                        e.data() + first * d, d, 0.0F, logits.data() + first, n_vocab);
        }
      });
}

/// Turns logits into probabilities and returns the logarithm of their sum before.
double to_probabilities(std::span<float> row) {
  const float most = *std::max_element(row.begin(), row.end());
  double sum = 0;
  for (float& value : row) {
    value = std::exp(value - most);
    sum += static_cast<double>(value);
  }
  const auto factor = static_cast<float>(1 / sum);
  for (float& value : row)
    value *= factor;
  return static_cast<double>(most) + std::log(sum);
}

/// KL of one row; `model` becomes the gradient with respect to its logits.
double row_loss(std::span<float> original, std::span<float> model) {
  // sum p (log p - log q) = sum p (t - s) - log Z_t + log Z_s
  std::vector<float> difference(original.size());
  for (size_t v = 0; v < original.size(); ++v)
    difference[v] = original[v] - model[v];
  const double z_original = to_probabilities(original), z_model = to_probabilities(model);
  double sum = 0;
  for (size_t v = 0; v < original.size(); ++v) {
    sum += static_cast<double>(original[v]) * static_cast<double>(difference[v]);
    model[v] -= original[v];
  }
  return std::max(0.0, sum - z_original + z_model);
}

}  // namespace

double distillation_loss(std::span<const float> e, std::span<const float> original,
                         std::span<const float> model, int64_t d, std::span<float> gradient,
                         ThreadPool& pool) {
  const auto n_vocab = static_cast<int64_t>(e.size()) / d;
  const auto n = static_cast<int64_t>(model.size()) / d;
  if (original.size() != model.size() || (!gradient.empty() && gradient.size() != model.size()))
    throw InternalError("sizes of a distillation do not fit");
  std::vector<float> teacher, student;
  std::vector<double> losses(static_cast<size_t>(n));
  for (int64_t first = 0; first < n; first += kRowsAtOnce) {
    const int64_t rows = std::min(kRowsAtOnce, n - first);
    compute_logits(e, original.data() + first * d, rows, d, teacher, pool);
    compute_logits(e, model.data() + first * d, rows, d, student, pool);
    const auto width = static_cast<size_t>(n_vocab);
    pool.parallel_for(rows, 1, [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        const size_t at = static_cast<size_t>(r) * width;
        losses[static_cast<size_t>(first + r)] =
            row_loss({teacher.data() + at, width}, {student.data() + at, width});
      }
    });
    if (gradient.empty()) continue;
    pool.parallel_for((d + kGradientColumns - 1) / kGradientColumns, 1,
                      [&](int64_t begin, int64_t end) {
                        for (int64_t piece = begin; piece < end; ++piece) {
                          const int64_t column = piece * kGradientColumns;
                          blas::gemm(rows, std::min(kGradientColumns, d - column), n_vocab, 1.0F,
                                     student.data(), n_vocab, e.data() + column, d, 0.0F,
                                     gradient.data() + first * d + column, d);
                        }
                      });
  }
  double total = 0;
  for (const double loss : losses)
    total += loss;
  return total;
}

}  // namespace ts
