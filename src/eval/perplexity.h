/// Perplexity of a text under a model: exp of the mean negative log-likelihood of its tokens.
///
/// Three ways of giving a token its context, by name:
///   chunks     The token list (BOS in front where the model adds one) is cut into windows of
///              `context` tokens, the rest is dropped; BOS replaces the first token of each window
///              where the model adds one. Only the second half is scored: the logits at positions
///              [context/2, context - 1). Same as the perplexity tool of llama.cpp, so figures
///              compare.
///   sliding    Every token is scored once, with at least context - stride earlier tokens (all of
///              them near the start): windows advance by `stride` and score what no earlier window
///              scored. Where the model adds BOS, every window starts with it.
///   documents  Each document alone: BOS where the model has one, then every position is scored.
///              Blanks at both ends are removed, empty documents skipped, long ones cut to
///              `context` tokens.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/progress.h"
#include "eval/logits_source.h"

namespace ts {

enum class PerplexityMode { kChunks, kSliding, kDocuments };
std::string_view perplexity_mode_name(PerplexityMode mode) noexcept;

/// A stretch of the token list that is computed in one go.
struct ScoringWindow {
  size_t begin = 0, end = 0;  ///< of the token list
  bool bos_in_front = false;  ///< BOS goes before token `begin`
  bool bos_replaces = false;  ///< BOS takes the place of token `begin`
  size_t first_scored = 0;    ///< token of the list that is the first to be predicted
};

/// What is to be scored; made once, so that an interrupted run can go on.
struct PerplexityPlan {
  PerplexityMode mode = PerplexityMode::kChunks;
  int64_t context = 512;
  int64_t stride = 0;  ///< sliding only
  std::optional<int32_t> bos;
  std::vector<int32_t> tokens;
  std::vector<ScoringWindow> windows;
  uint64_t n_truncated = 0;  ///< documents cut to the context
};

/// `tokens` as the tokenizer gives them with special tokens added. `bos`: set when the model adds
/// one. InvalidArgument when there are fewer than 2 * context tokens.
PerplexityPlan plan_chunks(std::vector<int32_t> tokens, int64_t context,
                           std::optional<int32_t> bos);
/// `tokens` without special tokens.
PerplexityPlan plan_sliding(std::vector<int32_t> tokens, int64_t context, int64_t stride,
                            std::optional<int32_t> bos);
/// Each document's tokens without special tokens.
PerplexityPlan plan_documents(const std::vector<std::vector<int32_t>>& documents, int64_t context,
                              std::optional<int32_t> bos);

/// The windows of plan_chunks(): as many as n_tokens fill.
std::vector<ScoringWindow> chunk_windows(size_t n_tokens, int64_t context, bool with_bos);
/// plan_chunks() of a text: like the tool whose figures these compare with, without one newline at
/// the end of the file.
PerplexityPlan plan_text_chunks(const Engine& engine, std::string_view text, int64_t context);
/// The begin-of-text token, where the model puts one in front of texts.
std::optional<int32_t> bos_in_front(const Tokenizer& tokenizer);

/// The token ids a window is computed on. FormatError when one is not in a vocabulary of n_vocab.
std::vector<int32_t> window_ids(const PerplexityPlan& plan, const ScoringWindow& window,
                                int64_t n_vocab);
/// Index in window_ids() of the first token to be predicted; its logits are one position earlier.
inline size_t first_target(const ScoringWindow& window) noexcept {
  return window.first_scored - window.begin + (window.bos_in_front ? 1 : 0);
}

/// Parts of a text between separators, blanks at both ends removed, empty ones left out.
/// `limit` < 0 = all.
std::vector<std::string_view> split_documents(std::string_view text, std::string_view separator,
                                              int64_t limit);

/// Running sums; everything a resumed run needs.
struct PerplexitySums {
  uint64_t n_windows = 0;  ///< done
  uint64_t n_tokens = 0;   ///< scored
  double nll = 0;          ///< natural logarithms
  double nll_squared = 0;
  uint64_t n_bytes = 0;  ///< of the scored tokens' text
};

struct PerplexityResult {
  double perplexity = 0;
  double std_error = 0;  ///< of the perplexity: sqrt(var(nll) / (n - 1)) * perplexity
  double mean_nll = 0;
  double bits_per_byte = 0;  ///< 0 when the scored tokens have no text
};
PerplexityResult perplexity_of(const PerplexitySums& sums);

/// log of the sum of exp(logits): exp in float, sum in double.
double log_sum_exp(std::span<const float> logits);
/// -log softmax(logits)[target], likewise.
double negative_log_likelihood(std::span<const float> logits, int32_t target);

/// Scores windows [sums.n_windows, n_windows) and adds them to `sums`. `token_bytes(id)`: length of
/// a token's text. `on_window` sees the sums after each window (to report and to save them).
/// Throws Cancelled between tokens; `sums` then holds the complete windows. A non-finite
/// log-likelihood is a FormatError.
void score_windows(LogitsSource& source, const PerplexityPlan& plan, uint64_t n_windows,
                   const std::function<size_t(int32_t)>& token_bytes, PerplexitySums& sums,
                   const Progress& progress,
                   const std::function<void(const PerplexitySums&)>& on_window = {});

}  // namespace ts
