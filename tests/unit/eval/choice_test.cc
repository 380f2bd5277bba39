// Scores of choices against a plain forward pass, and what is shared between them.
#include "eval/choice.h"

#include <cmath>

#include <gtest/gtest.h>

#include <tensorsharp/error.hpp>

#include "eval/perplexity.h"
#include "support/error_matchers.h"
#include "support/temp_dir.h"
#include "support/tiny_model.h"

namespace ts {
namespace {

using test::catch_error;

class ChoiceTest : public ::testing::Test {
 protected:
  std::shared_ptr<const Engine> load(const test::TinyModel& model, int64_t context = 0) {
    const auto path = folder_ / (model.architecture + ".gguf");
    test::write_tiny_model(model, path);
    LoadOptions options;
    options.n_threads = 2;
    options.context = context;
    return Engine::load(path.string(), options);
  }

  /// Sum of ln p of the continuation's tokens, from logits of one pass over everything.
  static double plain_score(const Engine& engine, const std::string& context,
                            const std::string& continuation) {
    const auto encode = [&](std::string_view t) { return engine.tokenize(t, false, false); };
    const TokenPair pair = encode_pair(encode, 1, context, continuation);
    std::vector<int32_t> ids = pair.context;
    ids.insert(ids.end(), pair.continuation.begin(), pair.continuation.end());
    const auto vocab = static_cast<size_t>(engine.info().n_vocab);
    std::vector<float> logits(ids.size() * vocab);
    engine.new_session()->eval(ids, logits, true);
    double sum = 0;
    for (size_t i = pair.context.size(); i < ids.size(); ++i)
      sum -= negative_log_likelihood(std::span(logits).subspan((i - 1) * vocab, vocab), ids[i]);
    return sum;
  }

  static std::vector<ChoiceItem> items() {
    ChoiceItem shared{"s", {"Question: why?\nAnswer:"}, {" yes", " no, never", " x"}, 1};
    ChoiceItem next{"s", {"Question: why not?\nAnswer:"}, {" A", " B"}, 0};
    ChoiceItem filled{"t", {"Ann saw Bo, for Ann", "Ann saw Bo, for Bo"}, {" waved a hand."}, 1};
    return {shared, next, filled, shared};
  }

  test::TempDir folder_;
};

TEST_F(ChoiceTest, ScoresAreThoseOfAPlainPass) {
  const auto engine = load({});
  ChoiceScorer scorer(engine);
  const auto list = items();
  std::vector<ItemScore> scores;
  score_items(scorer, list, scores, {});
  ASSERT_EQ(scores.size(), list.size());
  for (size_t i = 0; i < list.size(); ++i) {
    ASSERT_EQ(scores[i].log_likelihoods.size(), list[i].n_choices());
    for (size_t c = 0; c < list[i].n_choices(); ++c)
      EXPECT_EQ(scores[i].log_likelihoods[c],
                plain_score(*engine, list[i].context(c), list[i].continuation(c)))
          << i << " " << c;
    EXPECT_FALSE(scores[i].truncated);
  }
  // The same item scored after others: the same bits.
  EXPECT_EQ(scores[0].log_likelihoods, scores[3].log_likelihoods);
}

TEST_F(ChoiceTest, RecurrentModelsGoBackToACheckpoint) {
  test::TinyModel model;
  model.architecture = "qwen35";
  const auto engine = load(model);
  ChoiceScorer scorer(engine);
  auto list = items();
  // Long enough that a remembered state is of use.
  for (ChoiceItem& item : list)
    for (std::string& context : item.contexts)
      context = std::string(150, 'e') + context;
  std::vector<ItemScore> scores;
  score_items(scorer, list, scores, {});
  for (size_t i = 0; i < list.size(); ++i)
    for (size_t c = 0; c < list[i].n_choices(); ++c)
      EXPECT_NEAR(scores[i].log_likelihoods[c],
                  plain_score(*engine, list[i].context(c), list[i].continuation(c)), 1e-3)
          << i << " " << c;
}

TEST_F(ChoiceTest, LongContextsLoseTheirBeginning) {
  const auto engine = load({}, 32);
  ChoiceScorer scorer(engine);
  const std::string tail = "end of context";
  ChoiceItem item{"", {std::string(200, 'a') + tail}, {" yes", " no"}, 0};
  const ItemScore score = scorer.score(item);
  EXPECT_TRUE(score.truncated);
  // " yes" is 4 bytes: 3 of its tokens are computed, 1 position is BOS.
  const std::string kept = std::string(200, 'a') + tail;
  const auto encode = [&](std::string_view t) { return engine->tokenize(t, false, false); };
  TokenPair pair = encode_pair(encode, 1, kept, " yes");
  const size_t room = 32 - (pair.continuation.size() - 1);
  std::vector<int32_t> ids = {1};
  ids.insert(ids.end(), pair.context.end() - static_cast<std::ptrdiff_t>(room - 1),
             pair.context.end());
  ids.insert(ids.end(), pair.continuation.begin(), pair.continuation.end() - 1);
  ASSERT_EQ(ids.size(), 32u);
  const auto vocab = static_cast<size_t>(engine->info().n_vocab);
  std::vector<float> logits(ids.size() * vocab);
  engine->new_session()->eval(ids, logits, true);
  double sum = 0;
  for (size_t i = 0; i < pair.continuation.size(); ++i)
    sum -= negative_log_likelihood(std::span(logits).subspan((room - 1 + i) * vocab, vocab),
                                   pair.continuation[i]);
  EXPECT_EQ(score.log_likelihoods[0], sum);
  item.continuations = {std::string(40, 'x'), "y"};
  EXPECT_EQ(catch_error([&] { scorer.score(item); }).code, ErrorCode::kResourceExhausted);
}

TEST_F(ChoiceTest, AnInterruptKeepsCompleteItems) {
  const auto engine = load({});
  std::atomic<bool> cancel = false;
  ChoiceScorer scorer(engine, &cancel);
  const auto list = items();
  std::vector<ItemScore> whole, scores;
  score_items(scorer, list, whole, {});
  EXPECT_THROW(score_items(scorer, list, scores, {}, [&] { cancel = scores.size() == 2; }),
               Cancelled);
  EXPECT_EQ(scores.size(), 2u);
  cancel = false;
  score_items(scorer, list, scores, {});
  for (size_t i = 0; i < list.size(); ++i)
    EXPECT_EQ(scores[i].log_likelihoods, whole[i].log_likelihoods);
}

/// One id per character, but a blank and the letter after it are one token.
std::vector<int32_t> toy_encode(std::string_view text) {
  std::vector<int32_t> ids;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == ' ' && i + 1 < text.size() && text[i + 1] != ' ')
      ids.push_back(1000 + text[++i]);
    else
      ids.push_back(text[i]);
  }
  return ids;
}

TEST(TokenPairs, AreSplitAtTheTokensOfTheContext) {
  TokenPair pair = encode_pair(toy_encode, std::nullopt, "ab", " cd");
  EXPECT_EQ(pair.context, (std::vector<int32_t>{'a', 'b'}));
  EXPECT_EQ(pair.continuation, (std::vector<int32_t>{1000 + 'c', 'd'}));
  // A blank at the end of the context belongs to what follows.
  pair = encode_pair(toy_encode, 7, "ab ", "cd");
  EXPECT_EQ(pair.context, (std::vector<int32_t>{7, 'a', 'b'}));
  EXPECT_EQ(pair.continuation, (std::vector<int32_t>{1000 + 'c', 'd'}));
  EXPECT_EQ(catch_error([] { encode_pair(toy_encode, 7, "ab", ""); }).code,
            ErrorCode::kInvalidArgument);
  EXPECT_EQ(catch_error([] { encode_pair(toy_encode, std::nullopt, "", "cd"); }).code,
            ErrorCode::kInvalidArgument);
  EXPECT_EQ(encode_pair(toy_encode, 7, "", "cd").context, std::vector<int32_t>{7});
}

TEST(ChoiceResults, CountRightAnswersByHand) {
  const std::vector<ChoiceItem> items = {
      {"a", {"q"}, {" yes", " certainly"}, 0},
      {"b", {"q"}, {" yes", " certainly"}, 1},
      {"a", {"q"}, {" A", " B", " C", " D"}, 2},
  };
  // Per byte -3 / 3 = -1 and -8 / 9 = -0.89: the sum prefers the first, bytes the second.
  const std::vector<ItemScore> scores = {
      {{-3, -8}, false}, {{-3, -8}, false}, {{-2, -1, -1, -3}, false}};
  EXPECT_EQ(best_choice(std::vector<double>{-1, -1}), 0u);
  const ChoiceResult all = choice_result(items, scores);
  EXPECT_EQ(all.n_items, 3u);
  EXPECT_EQ(all.n_right, 1u);       // the first; of the two equals in the third, B is chosen
  EXPECT_EQ(all.n_right_norm, 1u);  // the second
  EXPECT_NEAR(all.chance, (0.5 + 0.5 + 0.25) / 3, 1e-12);
  const auto subjects = choice_results_by_subject(items, scores);
  ASSERT_EQ(subjects.size(), 2u);
  EXPECT_EQ(subjects[0].subject, "a");
  EXPECT_EQ(subjects[0].n_items, 2u);
  EXPECT_EQ(subjects[0].n_right, 1u);
  EXPECT_EQ(subjects[1].n_right_norm, 1u);
}

}  // namespace
}  // namespace ts
