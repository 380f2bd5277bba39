/// How well a quantized model predicts text, beside the model it was made from.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/progress.h"
#include "quantize/calibration_text.h"

namespace ts {

/// Beyond this ratio of perplexities a model is of no use for anything.
inline constexpr double kUselessRatio = 20;

struct Quality {
  std::string domain;  ///< the text; empty = all of them together
  int64_t n_tokens = 0;
  double perplexity_source = 0, perplexity = 0;
  double kl_mean = 0;  ///< of the source's distribution from the quantized model's, in nats
  double kl_median = 0, kl_p99 = 0;
  double top1_agreement = 0;  ///< share of tokens at which both find the same token most likely
  double ratio() const noexcept {
    return perplexity_source > 0 ? perplexity / perplexity_source : 0;
  }
};

/// Logits of the source: `out` [count, n_vocab] for tokens [first, first + count) of sequence i.
using SourceLogits =
    std::function<void(size_t i, int64_t first, int64_t count, std::span<float> out)>;

/// Runs the model file on the sequences, as `tensorsharp run` would, and compares it with the
/// source's logits on the second half of each, of which every token has many before it. The first
/// result is of all texts together, the others are of each domain.
/// Errors: as Engine::load(); Cancelled.
std::vector<Quality> measure_quality(const std::filesystem::path& model,
                                     const TokenSequences& texts, const SourceLogits& source,
                                     int n_threads, const std::string& isa,
                                     const Progress& progress);

}  // namespace ts
