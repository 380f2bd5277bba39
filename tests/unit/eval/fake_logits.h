/// A logits source without a model: the logits of a position depend on the whole sequence before
/// it, so that a wrong context, shift or missing token changes every result.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "eval/logits_source.h"

namespace ts::test {

/// Logits [n_vocab] after `ids`.
inline std::vector<float> fake_logits(std::span<const int32_t> ids, int64_t n_vocab) {
  uint64_t hash = 1469598103934665603ULL;
  for (const int32_t id : ids)
    hash = (hash ^ static_cast<uint64_t>(id)) * 1099511628211ULL;
  std::vector<float> logits(static_cast<size_t>(n_vocab));
  for (float& l : logits) {
    hash = hash * 6364136223846793005ULL + 1442695040888963407ULL;
    l = static_cast<float>(static_cast<int64_t>(hash >> 40)) / 1048576.0F - 8.0F;
  }
  return logits;
}

class FakeLogits : public LogitsSource {
 public:
  explicit FakeLogits(int64_t n_vocab) : n_vocab_(n_vocab) {}
  int64_t n_vocab() const override { return n_vocab_; }
  int64_t context() const override { return 1 << 20; }
  void start(std::span<const int32_t> ids, size_t first) override {
    ids_ = ids;
    at_ = first;
  }
  std::span<const float> next(size_t count) override {
    rows_.clear();
    for (size_t i = 0; i < count; ++i) {
      const std::vector<float> row = logits_after(ids_.first(++at_));
      rows_.insert(rows_.end(), row.begin(), row.end());
    }
    return rows_;
  }
  /// Small, so that windows take several turns.
  size_t rows_at_once() const override { return 5; }

 protected:
  virtual std::vector<float> logits_after(std::span<const int32_t> ids) const {
    return fake_logits(ids, n_vocab_);
  }

 private:
  int64_t n_vocab_;
  size_t at_ = 0;
  std::span<const int32_t> ids_;
  std::vector<float> rows_;
};

}  // namespace ts::test
