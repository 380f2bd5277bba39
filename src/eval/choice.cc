#include "eval/choice.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include <tensorsharp/error.hpp>

#include "base/quote_text.h"
#include "eval/logits_source.h"
#include "eval/perplexity.h"
#include "text/tokenizer.h"

namespace ts {
namespace {

void add_item(ChoiceResult& result, const ChoiceItem& item, const ItemScore& score) {
  ++result.n_items;
  if (best_choice(score.log_likelihoods) == item.answer) ++result.n_right;
  if (best_choice(per_byte(item, score.log_likelihoods)) == item.answer) ++result.n_right_norm;
  // A running mean, to need no further field.
  result.chance += (1.0 / static_cast<double>(item.n_choices()) - result.chance) /
                   static_cast<double>(result.n_items);
}

}  // namespace

TokenPair encode_pair(const Encode& encode, std::optional<int32_t> bos, std::string_view context,
                      std::string_view continuation) {
  const size_t end = context.find_last_not_of(" \t\r\n\f\v") + 1;
  const std::string whole = std::string(context) + std::string(continuation);
  TokenPair pair;
  if (bos) pair.context.push_back(*bos);
  const std::vector<int32_t> before = encode(std::string_view(whole).substr(0, end));
  const std::vector<int32_t> all = encode(whole);
  pair.context.insert(pair.context.end(), before.begin(), before.end());
  if (all.size() > before.size())
    pair.continuation.assign(all.begin() + static_cast<std::ptrdiff_t>(before.size()), all.end());
  if (pair.continuation.empty())
    throw InvalidArgument(
        fmt::format("the continuation {} adds no token to its context; it cannot be scored",
                    quote_text(continuation)));
  if (pair.context.empty())
    throw InvalidArgument(fmt::format(
        "nothing is in front of the continuation {}, and the model adds no begin-of-text token",
        quote_text(continuation)));
  return pair;
}

size_t best_choice(std::span<const double> values) {
  return static_cast<size_t>(std::max_element(values.begin(), values.end()) - values.begin());
}

std::vector<double> per_byte(const ChoiceItem& item, std::span<const double> log_likelihoods) {
  std::vector<double> out(log_likelihoods.begin(), log_likelihoods.end());
  for (size_t i = 0; i < out.size(); ++i) {
    std::string_view text = item.continuation(i);
    if (text.starts_with(' ')) text.remove_prefix(1);
    out[i] /= static_cast<double>(std::max<size_t>(text.size(), 1));
  }
  return out;
}

ChoiceScorer::ChoiceScorer(std::shared_ptr<const Engine> engine, const std::atomic<bool>* cancel)
    : engine_(std::move(engine)),
      session_(engine_->new_session()),
      cancel_(cancel),
      context_logits_(static_cast<size_t>(engine_->info().n_vocab)) {}

void ChoiceScorer::hold(std::span<const int32_t> ids, std::span<float> logits) {
  const std::span<const int32_t> held = session_->tokens();
  size_t common = 0;
  while (common < held.size() && common < ids.size() && held[common] == ids[common])
    ++common;
  // The last token is computed in any case when its logits are wanted.
  if (!logits.empty() && common == ids.size()) --common;
  const int64_t target = session_->rewind_target(static_cast<int64_t>(common));
  session_->truncate(target);
  const std::span<const int32_t> rest = ids.subspan(static_cast<size_t>(target));
  if (!rest.empty()) session_->eval(rest, logits, false, cancel_);
}

double ChoiceScorer::continuation_log_likelihood(const TokenPair& pair) {
  if (context_ != pair.context) {
    context_.clear();
    hold(pair.context, context_logits_);
    context_ = pair.context;
    context_log_sum_ = log_sum_exp(context_logits_);
  }
  double sum = static_cast<double>(context_logits_[static_cast<size_t>(pair.continuation[0])]) -
               context_log_sum_;
  const size_t n = pair.continuation.size();
  if (n == 1) return sum;
  hold(pair.context, {});
  const auto vocab = static_cast<size_t>(engine_->info().n_vocab);
  const size_t most = logits_rows_at_once(engine_->info().n_vocab);
  for (size_t at = 0; at + 1 < n;) {
    const size_t count = std::min(most, n - 1 - at);
    logits_.resize(std::max(logits_.size(), count * vocab));
    const std::span<float> logits = std::span(logits_).first(count * vocab);
    session_->eval(std::span(pair.continuation).subspan(at, count), logits, true, cancel_);
    for (size_t i = 0; i < count; ++i)
      sum -=
          negative_log_likelihood(logits.subspan(i * vocab, vocab), pair.continuation[at + i + 1]);
    at += count;
  }
  return sum;
}

ItemScore ChoiceScorer::score(const ChoiceItem& item) {
  const auto bos = bos_in_front(*engine_->tokenizer());
  const Encode encode = [this](std::string_view text) {
    return engine_->tokenize(text, false, false);
  };
  const auto split = [&](size_t choice) {
    try {
      return encode_pair(encode, bos, item.context(choice), item.continuation(choice));
    } catch (const InvalidArgument& error) {
      throw FormatError(
          fmt::format("{}{}{}", item.where, item.where.empty() ? "" : ": ", error.what()));
    }
  };
  const auto room = static_cast<size_t>(engine_->info().context);
  std::vector<TokenPair> pairs;
  size_t longest = 0;
  for (size_t i = 0; i < item.n_choices(); ++i) {
    pairs.push_back(split(i));
    longest = std::max(longest, pairs.back().continuation.size());
  }
  ItemScore score;
  for (TokenPair& pair : pairs) {
    // The last token is not computed. Contexts are cut to one length, so that they stay equal.
    const size_t fixed = bos ? 1 : 0;
    if (longest + fixed > room)
      throw ResourceExhausted(
          fmt::format("{}{}a continuation of {} tokens leaves no room for its context in {} "
                      "positions; use a larger --ctx",
                      item.where, item.where.empty() ? "" : ": ", longest, room));
    const size_t keep = room - (longest - 1);
    if (pair.context.size() > keep) {
      pair.context.erase(
          pair.context.begin() + static_cast<std::ptrdiff_t>(fixed),
          pair.context.begin() + static_cast<std::ptrdiff_t>(fixed + pair.context.size() - keep));
      score.truncated = true;
    }
    score.log_likelihoods.push_back(continuation_log_likelihood(pair));
    if (!std::isfinite(score.log_likelihoods.back()))
      throw FormatError(
          fmt::format("the log-likelihood of {} is not finite",
                      quote_text(item.continuation(score.log_likelihoods.size() - 1))));
  }
  return score;
}

void score_items(ChoiceScorer& scorer, std::span<const ChoiceItem> items,
                 std::vector<ItemScore>& scores, const Progress& progress,
                 const std::function<void()>& on_item) {
  while (scores.size() < items.size()) {
    progress("scoring", scores.size(), items.size());
    scores.push_back(scorer.score(items[scores.size()]));
    if (on_item) on_item();
  }
  progress("scoring", items.size(), items.size());
}

ChoiceResult choice_result(std::span<const ChoiceItem> items, std::span<const ItemScore> scores) {
  ChoiceResult result;
  for (size_t i = 0; i < scores.size(); ++i)
    add_item(result, items[i], scores[i]);
  return result;
}

std::vector<ChoiceResult> choice_results_by_subject(std::span<const ChoiceItem> items,
                                                    std::span<const ItemScore> scores) {
  std::vector<ChoiceResult> results;
  for (size_t i = 0; i < scores.size(); ++i) {
    const auto same = [&](const ChoiceResult& r) { return r.subject == items[i].subject; };
    auto found = std::find_if(results.begin(), results.end(), same);
    if (found == results.end()) {
      results.emplace_back().subject = items[i].subject;
      found = results.end() - 1;
    }
    add_item(*found, items[i], scores[i]);
  }
  return results;
}

}  // namespace ts
