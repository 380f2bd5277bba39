// Statistics and divergences against values computed by hand, windows against the definition, and
// the file of base probabilities.
#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>

#include <gtest/gtest.h>

#include <tensorsharp/error.hpp>

#include "eval/base_logits_file.h"
#include "eval/kl_divergence.h"
#include "eval/statistics.h"
#include "support/error_matchers.h"
#include "support/temp_dir.h"
#include "unit/eval/fake_logits.h"

namespace ts {
namespace {

using test::catch_error;
using test::fake_logits;
using test::FakeLogits;

constexpr int64_t kWords = 37;  // odd: rows of the file are padded
constexpr int64_t kWindow = 16;

std::vector<int32_t> some_tokens(size_t n) {
  std::vector<int32_t> ids(n);
  uint32_t state = 77;
  for (int32_t& id : ids) {
    state = state * 1664525u + 1013904223u;
    id = static_cast<int32_t>((state >> 16) % kWords);
  }
  return ids;
}

/// Predicts what FakeLogits does, pulled a little towards something else.
class ChangedLogits : public FakeLogits {
 public:
  using FakeLogits::FakeLogits;

 protected:
  std::vector<float> logits_after(std::span<const int32_t> ids) const override {
    std::vector<float> logits = fake_logits(ids, n_vocab());
    const std::vector<float> other = fake_logits(std::vector<int32_t>{ids.back()}, n_vocab());
    for (size_t i = 0; i < logits.size(); ++i)
      logits[i] = 0.8F * logits[i] + 0.2F * other[i];
    return logits;
  }
};

std::vector<double> log_softmax(const std::vector<float>& logits) {
  double sum = 0;
  for (const float l : logits)
    sum += std::exp(static_cast<double>(l));
  std::vector<double> out;
  for (const float l : logits)
    out.push_back(static_cast<double>(l) - std::log(sum));
  return out;
}

TEST(Statistics, MeansAndTheirErrors) {
  const Estimate mean = mean_of(std::vector<double>{1, 2, 3, 4});
  EXPECT_DOUBLE_EQ(mean.value, 2.5);
  EXPECT_NEAR(mean.std_error, 0.6454972243679028, 1e-15);
  EXPECT_EQ(mean_of(std::vector<double>{7}).value, 7);
  EXPECT_EQ(mean_of(std::vector<double>{7}).std_error, 0);
  const Estimate rms = root_mean_square(std::vector<double>{3, -4});
  EXPECT_NEAR(rms.value, 3.5355339059327378, 1e-15);
  EXPECT_NEAR(rms.std_error, 0.4949747468305833, 1e-15);
  const Interval interval = interval_95({10, 2});
  EXPECT_NEAR(interval.low, 6.080072030919891, 1e-12);
  EXPECT_NEAR(interval.high, 13.919927969080109, 1e-12);
}

TEST(Statistics, Proportions) {
  const Estimate p = proportion_of(3, 4);
  EXPECT_DOUBLE_EQ(p.value, 0.75);
  EXPECT_DOUBLE_EQ(p.std_error, 0.25);
  Interval interval = proportion_interval_95(8, 10);
  EXPECT_NEAR(interval.low, 0.4901625, 1e-6);
  EXPECT_NEAR(interval.high, 0.9433178, 1e-6);
  interval = proportion_interval_95(0, 10);
  EXPECT_EQ(interval.low, 0);
  EXPECT_NEAR(interval.high, 0.2775328, 1e-6);
  EXPECT_EQ(proportion_interval_95(10, 10).high, 1);
}

TEST(Statistics, Quantiles) {
  const std::vector<double> values = {1, 2, 3, 4, 10};
  EXPECT_DOUBLE_EQ(quantile_of_sorted(values, 0.5), 3);
  EXPECT_DOUBLE_EQ(quantile_of_sorted(values, 0.9), 7.6);
  EXPECT_DOUBLE_EQ(quantile_of_sorted(values, 1), 10);
  EXPECT_DOUBLE_EQ(quantile_of_sorted(std::vector<double>{1, 2}, 0.5), 1.5);
  EXPECT_DOUBLE_EQ(quantile_of_sorted(std::vector<double>{5}, 0.999), 5);
}

TEST(Divergence, OfThreeTokensByHand) {
  const std::vector<float> p = {std::log(0.5F), std::log(0.25F), std::log(0.25F)};
  const std::vector<float> q = {std::log(0.25F), std::log(0.5F), std::log(0.25F)};
  // 0.5 ln 2 + 0.25 ln (1/2) = 0.25 ln 2; raw values may have any offset.
  std::vector<float> q_shifted = q;
  for (float& v : q_shifted)
    v += 3;
  const PositionDivergence d =
      compare_distributions({p, 0}, {q_shifted, log_sum_exp(q_shifted)}, 1);
  EXPECT_NEAR(d.kl, 0.25 * std::log(2.0), 1e-6);
  EXPECT_NEAR(d.nll_base, std::log(4.0), 1e-6);
  EXPECT_NEAR(d.nll, std::log(2.0), 1e-6);
  EXPECT_FALSE(d.same_top);
  EXPECT_TRUE(compare_distributions({p, 0}, {p, 0}, 0).same_top);
}

TEST(Divergence, TokensBelowTheFloorDoNotCount) {
  const std::vector<float> p = {std::log(0.5F), std::log(0.5F), -17.0F};
  const std::vector<float> q = {std::log(0.5F), std::log(0.5F), -30.0F};
  EXPECT_NEAR(compare_distributions({p, 0}, {q, 0}, 0).kl, std::exp(-17.0) * 13, 1e-12);
  EXPECT_EQ(compare_distributions({p, 0, -16}, {q, 0}, 0).kl, 0);
}

TEST(Divergence, OfAModelFromItselfIsExactlyZero) {
  FakeLogits a(kWords), b(kWords);
  BaseModel base(a);
  const auto plan = plan_chunks(some_tokens(100), kWindow, 1);
  DivergenceRun run;
  compare_windows(base, b, plan, 6, run, {});
  ASSERT_EQ(run.positions.size(), 6u * 7u);
  for (const PositionDivergence& p : run.positions) {
    EXPECT_EQ(p.kl, 0);
    EXPECT_EQ(p.nll, p.nll_base);
    EXPECT_TRUE(p.same_top);
  }
  const DivergenceResult result = summarise(run.positions);
  EXPECT_EQ(result.kl_max, 0);
  EXPECT_EQ(result.ln_ratio.value, 0);
  EXPECT_EQ(result.ln_ratio.std_error, 0);
  EXPECT_EQ(result.top1_agreement.value, 1);
}

TEST(Divergence, WindowsAgreeWithTheDefinition) {
  const std::vector<int32_t> tokens = some_tokens(60);
  const auto plan = plan_chunks(tokens, kWindow, 1);
  FakeLogits a(kWords);
  ChangedLogits b(kWords);
  BaseModel base(a);
  DivergenceRun run;
  compare_windows(base, b, plan, 100, run, {});
  ASSERT_EQ(run.n_windows, 3u);
  size_t at = 0;
  double kl_sum = 0, same = 0, change = 0, change_squared = 0, ln_ratio = 0;
  for (size_t w = 0; w < 3; ++w) {
    std::vector<int32_t> window(tokens.begin() + w * kWindow, tokens.begin() + (w + 1) * kWindow);
    window[0] = 1;
    for (size_t j = kWindow / 2; j + 1 < kWindow; ++j) {
      const std::span<const int32_t> before(window.data(), j + 1);
      class Open : public ChangedLogits {
       public:
        using ChangedLogits::ChangedLogits;
        using ChangedLogits::logits_after;
      };
      const auto p = log_softmax(fake_logits(before, kWords));
      const auto q = log_softmax(Open(kWords).logits_after(before));
      double kl = 0;
      for (size_t i = 0; i < p.size(); ++i)
        kl += std::exp(p[i]) * (p[i] - q[i]);
      const auto target = static_cast<size_t>(window[j + 1]);
      const PositionDivergence& found = run.positions.at(at++);
      EXPECT_NEAR(found.kl, kl, 1e-6);
      EXPECT_NEAR(found.nll_base, -p[target], 1e-6);
      EXPECT_NEAR(found.nll, -q[target], 1e-6);
      const bool same_top = std::max_element(p.begin(), p.end()) - p.begin() ==
                            std::max_element(q.begin(), q.end()) - q.begin();
      EXPECT_EQ(found.same_top, same_top);
      const double d = std::exp(q[target]) - std::exp(p[target]);
      kl_sum += kl, same += same_top, change += d, change_squared += d * d;
      ln_ratio += p[target] - q[target];
    }
  }
  const auto n = static_cast<double>(at);
  ASSERT_EQ(at, run.positions.size());
  const DivergenceResult result = summarise(run.positions);
  EXPECT_GT(kl_sum / n, 0.01);  // the two do differ
  EXPECT_NEAR(result.kl.value, kl_sum / n, 1e-6);
  EXPECT_NEAR(result.top1_agreement.value, same / n, 1e-12);
  EXPECT_NEAR(result.p_change.value, change / n, 1e-6);
  EXPECT_NEAR(result.p_change_rms.value, std::sqrt(change_squared / n), 1e-6);
  EXPECT_NEAR(result.ln_ratio.value, ln_ratio / n, 1e-6);
  EXPECT_LE(result.kl_median, result.kl_p90);
  EXPECT_LE(result.kl_p90, result.kl_p99);
  EXPECT_LE(result.kl_p999, result.kl_max);
}

TEST(Divergence, ThePairedErrorIsThatOfTheDifferences) {
  // nll 1 and 3 against 1.5 and 2.5: differences -0.5 and 0.5.
  const std::vector<PositionDivergence> positions = {{0.1, 1.5, 1, true}, {0.3, 2.5, 3, false}};
  const DivergenceResult r = summarise(positions);
  EXPECT_DOUBLE_EQ(r.ln_ratio.value, 0);
  EXPECT_DOUBLE_EQ(r.ln_ratio.std_error, 0.5);
  EXPECT_DOUBLE_EQ(r.mean_nll.std_error, 1);
  // var + var - 2 cov, with the covariance (1 * 0.5) / n / (n - 1) of the means.
  EXPECT_DOUBLE_EQ(r.ln_ratio.std_error * r.ln_ratio.std_error,
                   1 * 1 + 0.5 * 0.5 - 2 * (2 * 1 * 0.5) / 2);
  EXPECT_DOUBLE_EQ(r.kl_median, 0.2);
  EXPECT_DOUBLE_EQ(r.top1_agreement.value, 0.5);
}

TEST(Divergence, AnInterruptKeepsCompleteWindows) {
  const auto plan = plan_chunks(some_tokens(100), kWindow, 1);
  FakeLogits a(kWords);
  ChangedLogits b(kWords);
  BaseModel base(a);
  DivergenceRun whole, run;
  compare_windows(base, b, plan, 6, whole, {});
  CancelToken cancel;
  Progress progress;
  progress.cancel = &cancel;
  EXPECT_THROW(compare_windows(base, b, plan, 6, run, progress,
                               [&](const DivergenceRun& now) {
                                 if (now.n_windows == 2) cancel.cancel();
                               }),
               Cancelled);
  EXPECT_EQ(run.n_windows, 2u);
  EXPECT_EQ(run.positions.size(), 14u);
  cancel.reset();
  compare_windows(base, b, plan, 6, run, progress);
  ASSERT_EQ(run.positions.size(), whole.positions.size());
  for (size_t i = 0; i < run.positions.size(); ++i)
    EXPECT_EQ(run.positions[i].kl, whole.positions[i].kl);
}

TEST(Divergence, OtherVocabulariesAndBadNumbersAreRefused) {
  FakeLogits a(kWords + 1), b(kWords);
  BaseModel base(a);
  DivergenceRun run;
  const auto plan = plan_chunks(some_tokens(40), kWindow, 1);
  EXPECT_EQ(catch_error([&] { compare_windows(base, b, plan, 1, run, {}); }).code,
            ErrorCode::kInvalidArgument);
  class Broken : public FakeLogits {
   public:
    using FakeLogits::FakeLogits;
    std::vector<float> logits_after(std::span<const int32_t>) const override {
      return std::vector<float>(kWords, std::numeric_limits<float>::quiet_NaN());
    }
  } broken(kWords);
  BaseModel sound(b);
  EXPECT_EQ(catch_error([&] { compare_windows(sound, broken, plan, 1, run, {}); }).code,
            ErrorCode::kFormat);
  EXPECT_TRUE(run.positions.empty());
}

// --- the file ------------------------------------------------------------------------------------

class BaseFileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    FakeLogits source(kWords);
    const std::span<const int32_t> kept(plan_.tokens.data(), 2 * kWindow);
    BaseLogitsWriter writer(path_, false, kWindow, kWords, kept);
    BaseModel base(source, &writer);
    visit_base(base, plan_, 2, {});
    writer.finish();
    std::ifstream in(path_, std::ios::binary);
    bytes_.assign(std::istreambuf_iterator<char>(in), {});
  }

  template <typename T>
  T at(size_t offset) const {
    T value;
    std::memcpy(&value, bytes_.data() + offset, sizeof(value));
    return value;
  }
  /// What opening (and reading) the file says after `change`.
  test::Thrown opened_after(const std::function<void(std::string&)>& change) const {
    std::string bytes = bytes_;
    change(bytes);
    const auto path = folder_ / "changed.kld";
    std::ofstream(path, std::ios::binary) << bytes;
    const test::Thrown thrown = catch_error([&] {
      const BaseLogitsReader reader(path);
      std::vector<float> row(static_cast<size_t>(reader.n_vocab()));
      reader.read_row(0, 0, row);
    });
    EXPECT_NE(thrown.message.find("changed.kld"), std::string::npos) << thrown.message;
    return thrown;
  }
  template <typename T>
  static std::function<void(std::string&)> put(size_t offset, T value) {
    return [=](std::string& bytes) { std::memcpy(bytes.data() + offset, &value, sizeof(value)); };
  }

  const PerplexityPlan plan_ = plan_chunks(some_tokens(40), kWindow, 1);
  test::TempDir folder_;
  const std::filesystem::path path_ = folder_ / "base.kld";
  std::string bytes_;
  static constexpr size_t kRows = 20 + 2 * kWindow * 4;
  static constexpr size_t kRowBytes = (38 + 4) * 2;
};

TEST_F(BaseFileTest, HasTheLayout) {
  ASSERT_EQ(bytes_.size(), kRows + 2 * 7 * kRowBytes);
  EXPECT_EQ(bytes_.substr(0, 8), "_logits_");
  EXPECT_EQ(at<uint32_t>(8), 16u);
  EXPECT_EQ(at<int32_t>(12), 37);
  EXPECT_EQ(at<int32_t>(16), 2);
  for (size_t i = 0; i < 2 * kWindow; ++i)
    EXPECT_EQ(at<int32_t>(20 + 4 * i), plan_.tokens[i]);  // as tokenized, BOS not put in
  // The row of the first window's position 8.
  std::vector<int32_t> window(plan_.tokens.begin(), plan_.tokens.begin() + 9);
  window[0] = 1;
  const auto expected = log_softmax(fake_logits(window, kWords));
  const auto scale = at<float>(kRows), minimum = at<float>(kRows + 4);
  for (size_t i = 0; i < expected.size(); ++i) {
    const double found = minimum + scale * static_cast<double>(at<uint16_t>(kRows + 8 + 2 * i));
    EXPECT_NEAR(found, expected[i], 0.51 * 16 / 65535 + 1e-5);
  }
}

TEST_F(BaseFileTest, GivesNearlyTheSameFiguresAsTheModel) {
  EXPECT_TRUE(is_base_logits_file(path_));
  const BaseLogitsReader reader(path_);
  EXPECT_EQ(reader.n_windows(), 2);
  BaseFile from_file(reader);
  FakeLogits a(kWords);
  BaseModel from_model(a);
  ChangedLogits b(kWords);
  DivergenceRun one, other;
  compare_windows(from_file, b, plan_, 2, one, {});
  compare_windows(from_model, b, plan_, 2, other, {});
  ASSERT_EQ(one.positions.size(), other.positions.size());
  for (size_t i = 0; i < one.positions.size(); ++i) {
    EXPECT_NEAR(one.positions[i].kl, other.positions[i].kl, 1e-3);
    EXPECT_NEAR(one.positions[i].nll_base, other.positions[i].nll_base, 1e-3);
    EXPECT_EQ(one.positions[i].nll, other.positions[i].nll);
  }
}

TEST_F(BaseFileTest, SmallProbabilitiesAreRaisedToTheFloor) {
  const auto path = folder_ / "small.kld";
  const std::vector<int32_t> tokens = {0, 1, 2, 0};
  BaseLogitsWriter writer(path, false, 4, 3, tokens);
  const std::vector<float> logits = {10, 5, -40};
  writer.write(logits, log_sum_exp(logits));
  writer.finish();
  std::vector<float> row(3);
  BaseLogitsReader(path).read_row(0, 0, row);
  const auto expected = log_softmax(logits);
  EXPECT_NEAR(row[0], expected[0], 1e-5);
  EXPECT_NEAR(row[1], expected[1], 2e-4);
  EXPECT_NEAR(row[2], expected[0] - 16, 1e-5);
  // All equal: nothing between the least and the most.
  const auto flat = folder_ / "flat.kld";
  BaseLogitsWriter equal(flat, false, 4, 3, tokens);
  equal.write(std::vector<float>{2, 2, 2}, 2 + std::log(3.0));
  equal.finish();
  BaseLogitsReader(flat).read_row(0, 0, row);
  EXPECT_NEAR(row[1], -std::log(3.0), 1e-6);
}

TEST_F(BaseFileTest, DamageIsRefused) {
  const auto code_after = [&](const auto& change) { return opened_after(change).code; };
  const auto format = ErrorCode::kFormat;
  EXPECT_NE(opened_after([](std::string& b) { b.pop_back(); }).message.find("cut off"),
            std::string::npos);
  EXPECT_NE(opened_after([](std::string& b) { b += 'x'; }).message.find("too long"),
            std::string::npos);
  EXPECT_EQ(code_after([](std::string& b) { b.resize(12); }), format);
  EXPECT_EQ(code_after([](std::string& b) { b[0] = '-'; }), format);
  EXPECT_EQ(code_after(put(8, uint32_t{0})), format);
  EXPECT_EQ(code_after(put(8, UINT32_MAX)), format);
  EXPECT_EQ(code_after(put(12, int32_t{0})), format);
  EXPECT_EQ(code_after(put(12, int32_t{-37})), format);
  EXPECT_EQ(code_after(put(16, INT32_MAX)), format);
  EXPECT_EQ(code_after(put(20, int32_t{37})), format);
  EXPECT_EQ(code_after(put(20, int32_t{-1})), format);
  EXPECT_EQ(code_after(put(kRows, std::nanf(""))), format);
  EXPECT_EQ(code_after(put(kRows, -1.0F)), format);
  EXPECT_EQ(code_after(put(kRows + 4, -std::numeric_limits<float>::infinity())), format);
  EXPECT_NE(opened_after(put(kRows + 4, 3.0F)).message.find("add up"), std::string::npos);
}

TEST_F(BaseFileTest, AppearsOnlyWhenItIsWhole) {
  const auto path = folder_ / "part.kld";
  {
    BaseLogitsWriter writer(path, false, 4, 3, std::vector<int32_t>{0, 1, 2, 0});
    EXPECT_EQ(catch_error([&] { writer.finish(); }).code, ErrorCode::kInternal);
  }
  EXPECT_FALSE(std::filesystem::exists(path));
  EXPECT_EQ(catch_error([&] {
              BaseLogitsWriter(path_, false, 4, 3, std::vector<int32_t>{0, 1, 2, 0});
            }).code,
            ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace ts
