#include "eval/kl_divergence.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include <tensorsharp/error.hpp>

#include "base/quote_text.h"
#include "text/tokenizer.h"

namespace ts {
namespace {

constexpr double kFileFloor = -16;

/// Positions of a window whose logits are scored: [first, last).
struct ScoredRange {
  std::vector<int32_t> ids;
  size_t first = 0, last = 0;
};

ScoredRange scored_range(const PerplexityPlan& plan, uint64_t window, int64_t n_vocab) {
  ScoredRange range;
  range.ids = window_ids(plan, plan.windows[window], n_vocab);
  range.first = first_target(plan.windows[window]) - 1;
  range.last = range.ids.size() - 1;
  return range;
}

std::string describe_id(const std::optional<int32_t>& id) {
  return id ? fmt::to_string(*id) : "none";
}

}  // namespace

PositionDivergence compare_distributions(const LogDistribution& base, const LogDistribution& model,
                                         int32_t target) {
  const std::span<const float> b = base.values, m = model.values;
  // Differences of the raw values are taken first: they are exactly 0 for equal values, and small
  // numbers otherwise.
  const double shift = model.log_sum - base.log_sum;
  double kl = 0;
  size_t top_base = 0, top = 0;
  for (size_t i = 0; i < b.size(); ++i) {
    if (b[i] > b[top_base]) top_base = i;
    if (m[i] > m[top]) top = i;
    const double log_p = static_cast<double>(b[i]) - base.log_sum;
    if (log_p <= base.floor) continue;
    const double p = std::exp(static_cast<float>(log_p));
    kl += p * (static_cast<double>(b[i]) - static_cast<double>(m[i]) + shift);
  }
  const auto t = static_cast<size_t>(target);
  return {kl, base.log_sum - static_cast<double>(b[t]), model.log_sum - static_cast<double>(m[t]),
          top_base == top};
}

void BaseModel::start(uint64_t, std::span<const int32_t> ids, size_t first) {
  source_.start(ids, first);
}

std::span<const LogDistribution> BaseModel::next(size_t count) {
  const std::span<const float> logits = source_.next(count);
  const auto vocab = static_cast<size_t>(n_vocab());
  rows_.resize(count);
  for (size_t i = 0; i < count; ++i) {
    const std::span<const float> row = logits.subspan(i * vocab, vocab);
    rows_[i] = {row, log_sum_exp(row)};
    if (writer_ != nullptr) writer_->write(row, rows_[i].log_sum);
  }
  return rows_;
}

void BaseFile::start(uint64_t window, std::span<const int32_t>, size_t) {
  window_ = static_cast<int64_t>(window);
  row_ = 0;
}

std::span<const LogDistribution> BaseFile::next(size_t count) {
  const auto vocab = static_cast<size_t>(n_vocab());
  values_.resize(count * vocab);
  rows_.resize(count);
  for (size_t i = 0; i < count; ++i) {
    const std::span<float> row = std::span(values_).subspan(i * vocab, vocab);
    reader_.read_row(window_, row_++, row);
    rows_[i] = {row, 0, kFileFloor};
  }
  return rows_;
}

void compare_windows(BaseDistributions& base, LogitsSource& model, const PerplexityPlan& plan,
                     uint64_t n_windows, DivergenceRun& run, const Progress& progress,
                     const std::function<void(const DivergenceRun&)>& on_window) {
  if (base.n_vocab() != model.n_vocab())
    throw InvalidArgument(fmt::format(
        "the base predicts {} tokens, the model {}\n  A divergence compares probabilities token by "
        "token: use a base with the model's vocabulary.",
        base.n_vocab(), model.n_vocab()));
  n_windows = std::min<uint64_t>(n_windows, plan.windows.size());
  const auto vocab = static_cast<size_t>(model.n_vocab());
  const size_t most = std::min(base.rows_at_once(), model.rows_at_once());
  while (run.n_windows < n_windows) {
    progress("comparing", run.n_windows, n_windows);
    const ScoredRange range = scored_range(plan, run.n_windows, model.n_vocab());
    const size_t complete = run.positions.size();
    try {
      base.start(run.n_windows, range.ids, range.first);
      model.start(range.ids, range.first);
      for (size_t at = range.first; at < range.last;) {
        const size_t count = std::min(most, range.last - at);
        const std::span<const LogDistribution> expected = base.next(count);
        const std::span<const float> logits = model.next(count);
        for (size_t i = 0; i < count; ++i) {
          if (progress.cancel != nullptr) progress.cancel->check();
          const std::span<const float> row = logits.subspan(i * vocab, vocab);
          run.positions.push_back(
              compare_distributions(expected[i], {row, log_sum_exp(row)}, range.ids[at + i + 1]));
          const PositionDivergence& last = run.positions.back();
          if (!std::isfinite(last.kl) || !std::isfinite(last.nll) || !std::isfinite(last.nll_base))
            throw FormatError(
                fmt::format("the divergence at position {} of window {} is not finite", at + i + 1,
                            run.n_windows));
        }
        at += count;
      }
    } catch (...) {
      run.positions.resize(complete);
      throw;
    }
    ++run.n_windows;
    if (on_window) on_window(run);
  }
  progress("comparing", n_windows, n_windows);
}

void visit_base(BaseDistributions& base, const PerplexityPlan& plan, uint64_t n_windows,
                const Progress& progress) {
  n_windows = std::min<uint64_t>(n_windows, plan.windows.size());
  for (uint64_t window = 0; window < n_windows; ++window) {
    progress("computing the base", window, n_windows);
    const ScoredRange range = scored_range(plan, window, base.n_vocab());
    base.start(window, range.ids, range.first);
    for (size_t at = range.first; at < range.last;) {
      const size_t count = std::min(base.rows_at_once(), range.last - at);
      base.next(count);
      at += count;
    }
  }
  progress("computing the base", n_windows, n_windows);
}

DivergenceResult summarise(std::span<const PositionDivergence> positions) {
  DivergenceResult result;
  result.n_tokens = positions.size();
  const auto gather = [&](auto&& value) {
    std::vector<double> values(positions.size());
    std::transform(positions.begin(), positions.end(), values.begin(), value);
    return values;
  };
  using P = const PositionDivergence&;
  std::vector<double> kl = gather([](P p) { return p.kl; });
  result.kl = mean_of(kl);
  std::sort(kl.begin(), kl.end());
  result.kl_median = quantile_of_sorted(kl, 0.5);
  result.kl_p90 = quantile_of_sorted(kl, 0.9);
  result.kl_p95 = quantile_of_sorted(kl, 0.95);
  result.kl_p99 = quantile_of_sorted(kl, 0.99);
  result.kl_p999 = quantile_of_sorted(kl, 0.999);
  result.kl_max = kl.back();
  result.n_same_top = static_cast<uint64_t>(
      std::count_if(positions.begin(), positions.end(), [](P p) { return p.same_top; }));
  result.top1_agreement = proportion_of(result.n_same_top, result.n_tokens);
  const auto change = gather([](P p) { return std::exp(-p.nll) - std::exp(-p.nll_base); });
  result.p_change = mean_of(change);
  result.p_change_rms = root_mean_square(change);
  result.mean_nll = mean_of(gather([](P p) { return p.nll; }));
  result.mean_nll_base = mean_of(gather([](P p) { return p.nll_base; }));
  result.ln_ratio = mean_of(gather([](P p) { return p.nll - p.nll_base; }));
  return result;
}

void require_same_vocabulary(const Tokenizer& base, std::string_view base_name,
                             const Tokenizer& model, std::string_view model_name) {
  const auto refuse = [&](const std::string& what) {
    throw InvalidArgument(fmt::format(
        "{} and {} have different vocabularies: {}\n  A divergence compares probabilities token by "
        "token: use a base with the model's vocabulary.",
        base_name, model_name, what));
  };
  if (base.n_vocab() != model.n_vocab())
    refuse(fmt::format("{} tokens against {}", base.n_vocab(), model.n_vocab()));
  for (int32_t id = 0; id < base.n_vocab(); ++id) {
    if (base.token_text(id) != model.token_text(id))
      refuse(fmt::format("token {} is {} there, {} here", id, quote_text(base.token_text(id)),
                         quote_text(model.token_text(id))));
  }
  const auto bos_base = bos_in_front(base), bos = bos_in_front(model);
  if (bos_base != bos)
    refuse(fmt::format("the begin-of-text token in front of texts is {} there, {} here",
                       describe_id(bos_base), describe_id(bos)));
}

}  // namespace ts
