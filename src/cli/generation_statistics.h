/// The figures `run` reports after an answer.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <nlohmann/json.hpp>

#include <tensorsharp/engine.hpp>

#include "cli/bandwidth.h"

namespace ts::cli {

struct GenerationStatistics {
  int64_t prompt_tokens = 0, cached_tokens = 0, generated_tokens = 0;
  double prompt_seconds = 0, generate_seconds = 0, first_token_seconds = 0;
  uint64_t peak_rss_bytes = 0;
  std::optional<KnownBandwidth> bandwidth;  ///< nothing = not comparable or not known
  std::optional<double> bandwidth_share;

  /// Tokens actually computed per second; 0 when nothing was.
  double prompt_rate() const;
  double generated_rate() const;
};

/// Measures the bandwidth if that tells something about this model and enough was generated.
GenerationStatistics statistics_of(const GenerateResult& result, const ModelInfo& info);
std::string describe(const GenerationStatistics& statistics);
void add_to_json(const GenerationStatistics& statistics, nlohmann::ordered_json& out);

/// Largest resident memory of this process so far.
uint64_t peak_rss_bytes() noexcept;

}  // namespace ts::cli
