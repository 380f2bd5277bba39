/// Scores multiple-choice items: the choice whose continuation is the most likely wins.
///
/// Context and continuation become tokens together; those beyond the context's own tokens are the
/// continuation. Blanks at the end of the context are moved to the continuation before, so that a
/// token that begins with a blank can form. (EleutherAI's evaluation harness does the same, so
/// figures compare.) The log-likelihood is the sum over the continuation's tokens; for
/// `accuracy_norm` it is divided by the UTF-8 bytes of the continuation without the blank that
/// separates it.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <tensorsharp/engine.hpp>

#include "base/progress.h"
#include "eval/statistics.h"
#include "eval/tasks/choice_task.h"

namespace ts {

/// Token ids of one choice of an item.
struct TokenPair {
  std::vector<int32_t> context, continuation;
};
using Encode = std::function<std::vector<int32_t>(std::string_view)>;
/// `encode` gives ids without special tokens; `bos` goes in front. InvalidArgument when the
/// continuation has no token of its own, or nothing is in front of it.
TokenPair encode_pair(const Encode& encode, std::optional<int32_t> bos, std::string_view context,
                      std::string_view continuation);

struct ItemScore {
  std::vector<double> log_likelihoods;  ///< one per choice
  bool truncated = false;               ///< the context lost its beginning to fit
};
/// Index of the largest value, the first of equals.
size_t best_choice(std::span<const double> values);
/// Log-likelihoods divided by the bytes of the continuations.
std::vector<double> per_byte(const ChoiceItem& item, std::span<const double> log_likelihoods);

/// Computes log-likelihoods with a session that is kept from choice to choice and item to item:
/// what two of them have in common at the beginning is computed once. (Models with recurrent layers
/// go back to the nearest remembered position and compute the rest again.)
class ChoiceScorer {
 public:
  /// `cancel`, when it goes up, ends a computation with Cancelled; may be null. Not owned.
  explicit ChoiceScorer(std::shared_ptr<const Engine> engine,
                        const std::atomic<bool>* cancel = nullptr);
  /// Contexts too long for the engine's context lose tokens at their beginning (after BOS).
  /// ResourceExhausted when not even one token of context fits.
  ItemScore score(const ChoiceItem& item);

 private:
  double continuation_log_likelihood(const TokenPair& pair);
  /// Makes the session hold `ids` and nothing else; the logits after the last go to `logits`.
  void hold(std::span<const int32_t> ids, std::span<float> logits);

  std::shared_ptr<const Engine> engine_;
  std::unique_ptr<Session> session_;
  const std::atomic<bool>* cancel_;
  std::vector<int32_t> context_;       ///< whose logits are in context_logits_
  std::vector<float> context_logits_;  ///< [n_vocab]
  double context_log_sum_ = 0;
  std::vector<float> logits_;  ///< [rows, n_vocab]
};

/// Scores items [scores.size(), items.size()) and appends to `scores`; after Cancelled it holds the
/// complete items.
void score_items(ChoiceScorer& scorer, std::span<const ChoiceItem> items,
                 std::vector<ItemScore>& scores, const Progress& progress,
                 const std::function<void()>& on_item = {});

struct ChoiceResult {
  std::string subject;  ///< empty = all
  uint64_t n_items = 0, n_right = 0, n_right_norm = 0;
  double chance = 0;  ///< mean of 1 / number of choices
  Estimate accuracy() const { return proportion_of(n_right, n_items); }
  Estimate accuracy_norm() const { return proportion_of(n_right_norm, n_items); }
};
/// Over the first scores.size() items.
ChoiceResult choice_result(std::span<const ChoiceItem> items, std::span<const ItemScore> scores);
/// The same by subject, in the order in which subjects appear.
std::vector<ChoiceResult> choice_results_by_subject(std::span<const ChoiceItem> items,
                                                    std::span<const ItemScore> scores);

}  // namespace ts
