/// Logits of whole models and how far apart two computations of them are.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <tensorsharp/engine.hpp>

namespace ts::test {

inline std::vector<int32_t> some_ids(size_t count, int64_t n_vocab) {
  std::vector<int32_t> ids;
  uint32_t state = 12345;
  while (ids.size() < count) {
    state = state * 1664525u + 1013904223u;
    ids.push_back(static_cast<int32_t>((state >> 8) % static_cast<uint32_t>(n_vocab)));
  }
  return ids;
}

/// For comparisons: an exact key-value cache, two threads.
inline LoadOptions comparison_options(bool exact) {
  LoadOptions o;
  o.exact = exact;
  o.kv = KvCacheType::kF32;
  o.n_threads = 2;
  return o;
}

/// [ids.size(), n_vocab], all in one go.
inline std::vector<float> engine_logits(const std::string& path, const std::vector<int32_t>& ids,
                                        const LoadOptions& options) {
  const auto engine = Engine::load(path, options);
  std::vector<float> logits(ids.size() * static_cast<size_t>(engine->info().n_vocab));
  engine->new_session()->eval(ids, logits, true);
  return logits;
}

struct Difference {
  double worst = 0;       ///< largest absolute difference of logits
  double divergence = 0;  ///< mean Kullback-Leibler divergence per token
  double relative = 0;    ///< rms difference / standard deviation of the logits wanted
};

/// Of [n_tokens, n_vocab] logits.
template <typename Wanted>
Difference compare(const std::vector<float>& got, const std::vector<Wanted>& want,
                   size_t n_tokens) {
  Difference d;
  EXPECT_EQ(got.size(), want.size());
  if (got.size() != want.size()) return d;
  const size_t n_vocab = want.size() / n_tokens;
  const auto log_sum = [n_vocab](const auto* logits) {
    double total = 0;
    for (size_t i = 0; i < n_vocab; ++i)
      total += std::exp(static_cast<double>(logits[i]));
    return std::log(total);
  };
  double errors = 0, sum = 0, squares = 0;
  for (size_t t = 0; t < n_tokens; ++t) {
    const Wanted* p = want.data() + t * n_vocab;
    const float* q = got.data() + t * n_vocab;
    const double zp = log_sum(p), zq = log_sum(q);
    for (size_t i = 0; i < n_vocab; ++i) {
      const double a = static_cast<double>(p[i]), b = static_cast<double>(q[i]);
      d.worst = std::max(d.worst, std::fabs(a - b));
      d.divergence += std::exp(a - zp) * ((a - zp) - (b - zq)) / static_cast<double>(n_tokens);
      errors += (a - b) * (a - b);
      sum += a;
      squares += a * a;
    }
  }
  const auto n = static_cast<double>(want.size());
  d.relative = std::sqrt(errors / n) / std::sqrt(squares / n - (sum / n) * (sum / n));
  return d;
}

}  // namespace ts::test
