#include "quantize/quality.h"

#include <algorithm>
#include <cmath>
#include <map>

#include <tensorsharp/engine.hpp>

#include "base/log.h"
#include "eval/logits_source.h"

namespace ts {
namespace {

/// Tokens whose source logits are computed at a time.
constexpr int64_t kRowsAtOnce = 32;

struct Sums {
  double nll_source = 0, nll = 0;
  int64_t n_same = 0;
  std::vector<float> kl;
};

size_t argmax(std::span<const float> values) {
  return static_cast<size_t>(std::max_element(values.begin(), values.end()) - values.begin());
}

/// log(sum(exp(logits))).
double log_sum(std::span<const float> logits) {
  const float max = logits[argmax(logits)];
  double sum = 0;
  for (const float l : logits)
    sum += std::exp(l - max);
  return static_cast<double>(max) + std::log(sum);
}

void add_token(Sums& sums, std::span<const float> source, std::span<const float> logits,
               int32_t target) {
  const double base = log_sum(source), other = log_sum(logits);
  double kl = 0;
  for (size_t v = 0; v < source.size(); ++v) {
    const float p = std::exp(source[v] - static_cast<float>(base));
    if (p > 0)
      kl += static_cast<double>(p) *
            ((static_cast<double>(source[v]) - base) - (static_cast<double>(logits[v]) - other));
  }
  sums.kl.push_back(static_cast<float>(std::max(kl, 0.0)));
  const auto t = static_cast<size_t>(target);
  sums.nll_source += base - static_cast<double>(source[t]);
  sums.nll += other - static_cast<double>(logits[t]);
  sums.n_same += argmax(source) == argmax(logits) ? 1 : 0;
}

Quality quality_of(const std::string& domain, Sums sums) {
  Quality q;
  q.domain = domain;
  q.n_tokens = static_cast<int64_t>(sums.kl.size());
  if (q.n_tokens == 0) return q;
  const auto n = static_cast<double>(q.n_tokens);
  q.perplexity_source = std::exp(sums.nll_source / n);
  q.perplexity = std::exp(sums.nll / n);
  q.top1_agreement = static_cast<double>(sums.n_same) / n;
  double kl = 0;
  for (const float k : sums.kl)
    kl += k;
  q.kl_mean = kl / n;
  std::sort(sums.kl.begin(), sums.kl.end());
  q.kl_median = sums.kl[sums.kl.size() / 2];
  q.kl_p99 = sums.kl[sums.kl.size() * 99 / 100];
  return q;
}

void append(Sums& all, const Sums& part) {
  all.nll_source += part.nll_source;
  all.nll += part.nll;
  all.n_same += part.n_same;
  all.kl.insert(all.kl.end(), part.kl.begin(), part.kl.end());
}

}  // namespace

std::vector<Quality> measure_quality(const std::filesystem::path& model,
                                     const TokenSequences& texts, const SourceLogits& source,
                                     int n_threads, const std::string& isa,
                                     const Progress& progress) {
  LoadOptions load;
  load.n_threads = n_threads;
  load.isa = isa;
  load.context = kSequenceTokens;
  std::shared_ptr<const Engine> engine;
  {
    // That a text may be longer than the model's context is no news here.
    WarningCollector warnings;
    engine = Engine::load(model.string(), load);
    for (const std::string& line : warnings.take()) {
      if (!line.starts_with("a context of")) log_warning(line);
    }
  }
  SessionLogits quantized(engine, progress.cancel);
  const auto n_vocab = static_cast<size_t>(quantized.n_vocab());
  std::vector<float> rows(static_cast<size_t>(kRowsAtOnce) * n_vocab);
  std::map<std::string, Sums> domains;
  for (size_t i = 0; i < texts.sequences.size(); ++i) {
    progress("measuring quality", i, texts.sequences.size());
    const auto& ids = texts.sequences[i];
    const size_t first = ids.size() / 2, last = ids.size() - 1;
    Sums& sums = domains[texts.domains[i]];
    size_t have_from = 0, have_to = 0;
    quantized.run(ids, first, last, [&](size_t position, std::span<const float> logits) {
      if (position >= have_to) {
        have_from = position;
        have_to = std::min(position + static_cast<size_t>(kRowsAtOnce), last);
        source(i, static_cast<int64_t>(have_from), static_cast<int64_t>(have_to - have_from),
               std::span(rows).first((have_to - have_from) * n_vocab));
      }
      add_token(sums, std::span(rows).subspan((position - have_from) * n_vocab, n_vocab), logits,
                ids[position + 1]);
    });
  }
  Sums all;
  std::vector<Quality> results(1);
  for (auto& [domain, sums] : domains) {
    append(all, sums);
    results.push_back(quality_of(domain, std::move(sums)));
  }
  results[0] = quality_of("", std::move(all));
  return results;
}

}  // namespace ts
