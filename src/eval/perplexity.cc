#include "eval/perplexity.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include <tensorsharp/error.hpp>

#include "text/tokenizer.h"

namespace ts {
namespace {

constexpr std::string_view kBlanks = " \t\r\n\f\v";

std::string_view trim(std::string_view text) noexcept {
  text.remove_prefix(std::min(text.find_first_not_of(kBlanks), text.size()));
  return text.substr(0, text.find_last_not_of(kBlanks) + 1);
}

void require_context(int64_t context) {
  if (context < 2)
    throw InvalidArgument(
        fmt::format("the window has {} positions; at least 2 are needed", context));
}

}  // namespace

std::string_view perplexity_mode_name(PerplexityMode mode) noexcept {
  switch (mode) {
    case PerplexityMode::kChunks:
      return "chunks";
    case PerplexityMode::kSliding:
      return "sliding";
    case PerplexityMode::kDocuments:
      return "documents";
  }
  return "?";
}

std::vector<ScoringWindow> chunk_windows(size_t n_tokens, int64_t context, bool with_bos) {
  const auto width = static_cast<size_t>(context);
  std::vector<ScoringWindow> windows;
  for (size_t begin = 0; begin + width <= n_tokens; begin += width)
    windows.push_back({begin, begin + width, false, with_bos, begin + width / 2 + 1});
  return windows;
}

PerplexityPlan plan_chunks(std::vector<int32_t> tokens, int64_t context,
                           std::optional<int32_t> bos) {
  require_context(context);
  PerplexityPlan plan;
  plan.mode = PerplexityMode::kChunks;
  plan.context = context;
  plan.bos = bos;
  const auto width = static_cast<size_t>(context);
  if (tokens.size() / 2 < width)
    throw InvalidArgument(
        fmt::format("the text has {} tokens; windows of {} need at least {}\n  Give a longer text "
                    "or a smaller --ctx.",
                    tokens.size(), context, 2 * context));
  plan.windows = chunk_windows(tokens.size(), context, bos.has_value());
  plan.tokens = std::move(tokens);
  return plan;
}

std::optional<int32_t> bos_in_front(const Tokenizer& tokenizer) {
  return tokenizer.adds_bos() ? tokenizer.data().bos : std::nullopt;
}

PerplexityPlan plan_text_chunks(const Engine& engine, std::string_view text, int64_t context) {
  if (text.ends_with('\n')) text.remove_suffix(1);
  return plan_chunks(engine.tokenize(text, true, false), context,
                     bos_in_front(*engine.tokenizer()));
}

PerplexityPlan plan_sliding(std::vector<int32_t> tokens, int64_t context, int64_t stride,
                            std::optional<int32_t> bos) {
  require_context(context);
  PerplexityPlan plan;
  plan.mode = PerplexityMode::kSliding;
  plan.context = context;
  plan.stride = stride;
  plan.bos = bos;
  const size_t width = static_cast<size_t>(context) - (bos ? 1 : 0);
  if (stride < 1 || static_cast<uint64_t>(stride) > width - (bos ? 0 : 1))
    throw InvalidArgument(fmt::format("--stride {} is not from 1 to {} for windows of {} positions",
                                      stride, width - (bos ? 0 : 1), context));
  if (tokens.size() < 2)
    throw InvalidArgument(
        fmt::format("the text has {} tokens; at least 2 are needed", tokens.size()));
  size_t scored = bos ? 0 : 1;  // without BOS nothing predicts the first token
  for (size_t begin = 0; scored < tokens.size(); begin += static_cast<size_t>(stride)) {
    const size_t end = std::min(begin + width, tokens.size());
    plan.windows.push_back({begin, end, bos.has_value(), false, scored});
    scored = end;
  }
  plan.tokens = std::move(tokens);
  return plan;
}

PerplexityPlan plan_documents(const std::vector<std::vector<int32_t>>& documents, int64_t context,
                              std::optional<int32_t> bos) {
  require_context(context);
  PerplexityPlan plan;
  plan.mode = PerplexityMode::kDocuments;
  plan.context = context;
  plan.bos = bos;
  const size_t most = static_cast<size_t>(context) - (bos ? 1 : 0);
  for (const auto& document : documents) {
    const size_t length = std::min(document.size(), most);
    if (document.size() > most) ++plan.n_truncated;
    const size_t unscored = bos ? 0 : 1;
    if (length <= unscored) continue;
    const size_t begin = plan.tokens.size();
    plan.tokens.insert(plan.tokens.end(), document.begin(),
                       document.begin() + static_cast<std::ptrdiff_t>(length));
    plan.windows.push_back({begin, begin + length, bos.has_value(), false, begin + unscored});
  }
  if (plan.windows.empty())
    throw InvalidArgument(
        "the text has no document with a token to score\n  Check the separator and the file.");
  return plan;
}

std::vector<int32_t> window_ids(const PerplexityPlan& plan, const ScoringWindow& window,
                                int64_t n_vocab) {
  std::vector<int32_t> ids;
  ids.reserve(window.end - window.begin + 1);
  if (window.bos_in_front) ids.push_back(*plan.bos);
  ids.insert(ids.end(), plan.tokens.begin() + static_cast<std::ptrdiff_t>(window.begin),
             plan.tokens.begin() + static_cast<std::ptrdiff_t>(window.end));
  if (window.bos_replaces && !ids.empty()) ids.front() = *plan.bos;
  for (const int32_t id : ids) {
    if (id < 0 || id >= n_vocab)
      throw FormatError(
          fmt::format("token {} is outside the model's vocabulary of {}", id, n_vocab));
  }
  return ids;
}

std::vector<std::string_view> split_documents(std::string_view text, std::string_view separator,
                                              int64_t limit) {
  if (separator.empty()) throw InvalidArgument("the document separator is empty");
  std::vector<std::string_view> documents;
  for (size_t begin = 0; begin <= text.size();) {
    if (limit >= 0 && documents.size() >= static_cast<uint64_t>(limit)) break;
    const size_t end = std::min(text.find(separator, begin), text.size());
    const std::string_view document = trim(text.substr(begin, end - begin));
    if (!document.empty()) documents.push_back(document);
    begin = end + separator.size();
  }
  return documents;
}

PerplexityResult perplexity_of(const PerplexitySums& sums) {
  PerplexityResult result;
  if (sums.n_tokens == 0) return result;
  const auto n = static_cast<double>(sums.n_tokens);
  result.mean_nll = sums.nll / n;
  result.perplexity = std::exp(result.mean_nll);
  const double variance = sums.nll_squared / n - result.mean_nll * result.mean_nll;
  if (variance > 0 && sums.n_tokens > 1)
    result.std_error = std::sqrt(variance / (n - 1)) * result.perplexity;
  if (sums.n_bytes > 0)
    result.bits_per_byte = sums.nll / std::log(2.0) / static_cast<double>(sums.n_bytes);
  return result;
}

double log_sum_exp(std::span<const float> logits) {
  float max = logits[0];
  for (const float l : logits)
    max = std::max(max, l);
  double sum = 0;
  for (const float l : logits)
    sum += std::exp(l - max);
  return std::log(sum) + static_cast<double>(max);
}

double negative_log_likelihood(std::span<const float> logits, int32_t target) {
  return log_sum_exp(logits) - static_cast<double>(logits[static_cast<size_t>(target)]);
}

void score_windows(LogitsSource& source, const PerplexityPlan& plan, uint64_t n_windows,
                   const std::function<size_t(int32_t)>& token_bytes, PerplexitySums& sums,
                   const Progress& progress,
                   const std::function<void(const PerplexitySums&)>& on_window) {
  n_windows = std::min<uint64_t>(n_windows, plan.windows.size());
  for (uint64_t w = sums.n_windows; w < n_windows; ++w) {
    progress("scoring", w, n_windows);
    const ScoringWindow& window = plan.windows[w];
    const std::vector<int32_t> ids = window_ids(plan, window, source.n_vocab());
    const size_t target = first_target(window);
    PerplexitySums next = sums;
    source.run(ids, target - 1, ids.size() - 1,
               [&](size_t position, std::span<const float> logits) {
                 if (progress.cancel != nullptr) progress.cancel->check();
                 const int32_t id = ids[position + 1];
                 const double nll = negative_log_likelihood(logits, id);
                 if (!std::isfinite(nll))
                   throw FormatError(fmt::format(
                       "the log-likelihood of token {} at position {} of window {} is not finite",
                       id, position + 1, w));
                 next.nll += nll;
                 next.nll_squared += nll * nll;
                 next.n_bytes += token_bytes(id);
                 ++next.n_tokens;
               });
    ++next.n_windows;
    sums = next;
    if (on_window) on_window(sums);
  }
  progress("scoring", n_windows, n_windows);
}

}  // namespace ts
