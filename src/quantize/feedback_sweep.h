/// Quantization of columns from left to right, each compensated for the errors made before it.
///
/// Source of the method: error feedback as in LDLQ / GPTQ; derivation in docs/quantize-methods.md.
#pragma once

#include <cstdint>
#include <vector>

#include "quantize/loss_metric.h"
#include "quantize/row_block.h"
#include "quantize/ternary_options.h"

namespace ts {

/// What the sweep needs of a metric besides its feedback: per block of columns the inverse of the
/// unit triangular diagonal block. Shared by all threads.
class FeedbackSweep {
 public:
  FeedbackSweep(const LossMetric& metric, const TernaryOptions& options, ThreadPool& pool);

  /// Chooses scales (at the first column of each group, for the weights as compensated so far) and
  /// codes of all rows of the block.
  void run(const RowBlock& block) const;

 private:
  void quantize_columns(const RowBlock& block, int64_t begin, int64_t end, GroupFitter& fitter,
                        std::vector<float>& columns, std::vector<Levels>& levels) const;

  const LossMetric& metric_;
  TernaryOptions options_;
  int64_t block_columns_;
  std::vector<std::vector<float>> inverse_;  // per block of columns [n, n]
};

}  // namespace ts
