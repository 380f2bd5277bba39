/// How far a model's predictions are from those of a base model, token by token of a text.
///
/// At every scored position (the same as those of perplexity in chunks) both models give a
/// distribution over the vocabulary, p of the base and q of the model:
///   KL divergence   sum over tokens of p (ln p - ln q)
///   top-1           whether the most likely token is the same
///   right token     the one that follows in the text: ln p and ln q of it
/// Both are computed in step, a few positions at a time, so no more than two blocks of logits are
/// held however long the windows are.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <span>
#include <string_view>
#include <vector>

#include "base/progress.h"
#include "eval/base_logits_file.h"
#include "eval/logits_source.h"
#include "eval/perplexity.h"
#include "eval/statistics.h"

namespace ts {

/// ln p of token i = values[i] - log_sum.
struct LogDistribution {
  std::span<const float> values;
  double log_sum = 0;
  /// Tokens with ln p at or below it are left out of the divergence.
  double floor = -std::numeric_limits<double>::infinity();
};

struct PositionDivergence {
  double kl = 0;
  double nll_base = 0, nll = 0;  ///< -ln of the right token's probability: base, model
  bool same_top = false;
};

/// One position. Equal distributions give a divergence of exactly 0.
PositionDivergence compare_distributions(const LogDistribution& base, const LogDistribution& model,
                                         int32_t target);

/// Where the base's distributions come from.
class BaseDistributions {
 public:
  virtual ~BaseDistributions() = default;
  virtual int64_t n_vocab() const = 0;
  /// Begins window `window` of the plan; `ids` (must stay alive) are its tokens, `first` the
  /// position of its first scored logits.
  virtual void start(uint64_t window, std::span<const int32_t> ids, size_t first) = 0;
  /// The next `count` positions; valid until the next call.
  virtual std::span<const LogDistribution> next(size_t count) = 0;
  virtual size_t rows_at_once() const = 0;
};

/// A model that is run alongside; what it gives is written to `writer` too, if there is one.
class BaseModel : public BaseDistributions {
 public:
  explicit BaseModel(LogitsSource& source, BaseLogitsWriter* writer = nullptr)
      : source_(source), writer_(writer) {}
  int64_t n_vocab() const override { return source_.n_vocab(); }
  void start(uint64_t window, std::span<const int32_t> ids, size_t first) override;
  std::span<const LogDistribution> next(size_t count) override;
  size_t rows_at_once() const override { return source_.rows_at_once(); }

 private:
  LogitsSource& source_;
  BaseLogitsWriter* writer_;
  std::vector<LogDistribution> rows_;
};

/// A stored base. As in the tools that share its layout, ln p <= -16 counts for nothing.
class BaseFile : public BaseDistributions {
 public:
  explicit BaseFile(const BaseLogitsReader& reader) : reader_(reader) {}
  int64_t n_vocab() const override { return reader_.n_vocab(); }
  void start(uint64_t window, std::span<const int32_t> ids, size_t first) override;
  std::span<const LogDistribution> next(size_t count) override;
  size_t rows_at_once() const override { return logits_rows_at_once(n_vocab()); }

 private:
  const BaseLogitsReader& reader_;
  int64_t window_ = 0, row_ = 0;
  std::vector<float> values_;
  std::vector<LogDistribution> rows_;
};

/// What has been compared so far: everything a resumed run needs.
struct DivergenceRun {
  uint64_t n_windows = 0;
  std::vector<PositionDivergence> positions;
};

/// Compares windows [run.n_windows, n_windows) of a plan in chunks and appends to `run`; after
/// Cancelled it holds the complete windows. A non-finite figure is a FormatError.
void compare_windows(BaseDistributions& base, LogitsSource& model, const PerplexityPlan& plan,
                     uint64_t n_windows, DivergenceRun& run, const Progress& progress,
                     const std::function<void(const DivergenceRun&)>& on_window = {});

/// Only computes the base's distributions, so that its writer gets them.
void visit_base(BaseDistributions& base, const PerplexityPlan& plan, uint64_t n_windows,
                const Progress& progress);

struct DivergenceResult {
  uint64_t n_tokens = 0;
  Estimate kl;
  double kl_median = 0, kl_p90 = 0, kl_p95 = 0, kl_p99 = 0, kl_p999 = 0, kl_max = 0;
  Estimate top1_agreement;
  uint64_t n_same_top = 0;
  Estimate p_change;      ///< of the right token's probability, model - base
  Estimate p_change_rms;  ///< root of its mean square
  Estimate mean_nll, mean_nll_base;
  /// ln(perplexity / base's perplexity); the error is that of the differences, position by
  /// position, and so far smaller than those of the two perplexities.
  Estimate ln_ratio;
};
/// At least one position.
DivergenceResult summarise(std::span<const PositionDivergence> positions);

/// InvalidArgument naming the first difference when two models do not share one vocabulary: ids,
/// texts of the tokens, begin-of-text.
void require_same_vocabulary(const Tokenizer& base, std::string_view base_name,
                             const Tokenizer& model, std::string_view model_name);

}  // namespace ts
