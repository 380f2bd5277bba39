#include "cli/generation_statistics.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include "cli/text_output.h"

namespace ts::cli {
namespace {

/// Fewer tokens than this say nothing about the rate.
constexpr int64_t kLeastTokens = 8;

double rate(int64_t tokens, double seconds) {
  return tokens > 0 && seconds > 0 ? static_cast<double>(tokens) / seconds : 0;
}

}  // namespace

uint64_t peak_rss_bytes() noexcept {
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<uint64_t>(usage.ru_maxrss) * 1024;
}

double GenerationStatistics::prompt_rate() const {
  return rate(prompt_tokens - cached_tokens, prompt_seconds);
}

double GenerationStatistics::generated_rate() const {
  // The first token comes out of the prompt's logits, so one fewer was computed.
  return rate(generated_tokens - 1, generate_seconds);
}

GenerationStatistics statistics_of(const GenerateResult& result, const ModelInfo& info) {
  GenerationStatistics out;
  out.prompt_tokens = result.prompt_tokens;
  out.cached_tokens = result.cached_tokens;
  out.generated_tokens = result.generated_tokens;
  out.prompt_seconds = result.prompt_seconds;
  out.generate_seconds = result.generate_seconds;
  out.first_token_seconds = result.first_token_seconds;
  out.peak_rss_bytes = peak_rss_bytes();
  if (result.generated_tokens >= kLeastTokens &&
      info.weight_bytes_per_token >= kLeastBytesForShare &&
      result.stop_reason != StopReason::kCancelled) {
    out.bandwidth = read_bandwidth(info.n_threads);
    if (out.bandwidth && out.bandwidth->bytes_per_second > 0)
      out.bandwidth_share = out.generated_rate() *
                            static_cast<double>(info.weight_bytes_per_token) /
                            out.bandwidth->bytes_per_second;
  }
  return out;
}

std::string describe(const GenerationStatistics& s) {
  std::string out = fmt::format("prompt {} tokens", s.prompt_tokens);
  if (s.cached_tokens > 0) out += fmt::format(" ({} reused)", s.cached_tokens);
  if (s.prompt_rate() > 0) out += fmt::format(", {:.1f} tokens/s", s.prompt_rate());
  out += fmt::format("; generated {} tokens", s.generated_tokens);
  if (s.generated_rate() > 0) out += fmt::format(", {:.1f} tokens/s", s.generated_rate());
  if (s.generated_tokens > 0)
    out += fmt::format("; first token {}", human_seconds(s.first_token_seconds));
  out += fmt::format("; peak memory {}", human_bytes(s.peak_rss_bytes));
  if (s.bandwidth_share)
    out += fmt::format("; {:.0f} % of {}/s memory bandwidth{}", 100 * *s.bandwidth_share,
                       human_bytes(static_cast<uint64_t>(s.bandwidth->bytes_per_second)),
                       s.bandwidth->from_cache ? "" : " (measured briefly; see bench --membw)");
  return out;
}

void add_to_json(const GenerationStatistics& s, nlohmann::ordered_json& out) {
  out["prompt_tokens"] = s.prompt_tokens;
  out["cached_tokens"] = s.cached_tokens;
  out["generated_tokens"] = s.generated_tokens;
  out["prompt_seconds"] = s.prompt_seconds;
  out["generate_seconds"] = s.generate_seconds;
  out["first_token_seconds"] = s.first_token_seconds;
  out["prompt_tokens_per_second"] = s.prompt_rate();
  out["generated_tokens_per_second"] = s.generated_rate();
  out["peak_rss_bytes"] = s.peak_rss_bytes;
  out["read_bandwidth_bytes_per_second"] = nullptr;
  out["bandwidth_share"] = nullptr;
  if (s.bandwidth) out["read_bandwidth_bytes_per_second"] = s.bandwidth->bytes_per_second;
  if (s.bandwidth_share) out["bandwidth_share"] = *s.bandwidth_share;
}

}  // namespace ts::cli
