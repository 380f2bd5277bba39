#include "cli/perplexity_state.h"

#include <bit>
#include <charconv>
#include <span>
#include <utility>

#include <fmt/format.h>

#include <tensorsharp/error.hpp>

#include "base/atomic_file.h"
#include "base/json.h"
#include "cli/input_text.h"

namespace ts::cli {
namespace {

constexpr std::string_view kFormat = "tensorsharp.perplexity";

/// Doubles travel as the hexadecimal of their bits: a resumed run must end in the same digits.
std::string bits_of(double value) {
  return fmt::format("{:016x}", std::bit_cast<uint64_t>(value));
}

}  // namespace

PerplexityState::PerplexityState(std::filesystem::path path, nlohmann::ordered_json identity)
    : path_(std::move(path)), identity_(std::move(identity)) {}

std::optional<PerplexitySums> PerplexityState::load() const {
  std::error_code ignored;
  if (path_.empty() || !std::filesystem::exists(path_, ignored)) return std::nullopt;
  const std::string name = path_.string();
  const nlohmann::json root = parse_json_limited(read_text_file(name), name);
  const auto fail = [&](const std::string& what) {
    throw FormatError(
        fmt::format("{}: not the state of a perplexity run: {}\n  Delete it to start "
                    "anew.",
                    name, what));
  };
  if (!root.is_object() || !root.contains("format") || root["format"] != kFormat)
    fail(fmt::format("\"format\" is not \"{}\"", kFormat));
  if (!root.contains("identity") || !root["identity"].is_object()) fail("no \"identity\"");
  for (const auto& [key, value] : identity_.items()) {
    const nlohmann::json found =
        root["identity"].contains(key) ? root["identity"][key] : nlohmann::json();
    if (found != nlohmann::json(value))
      throw InvalidArgument(fmt::format(
          "--resume {}: it belongs to another run: {} is {}, here {}\n  Delete it to start anew.",
          name, key, found.dump(), value.dump()));
  }
  const auto integer = [&](const char* key) {
    if (!root.contains(key) || !root[key].is_number_unsigned())
      fail(fmt::format("\"{}\" is no count", key));
    return root[key].get<uint64_t>();
  };
  const auto real = [&](const char* key) {
    if (!root.contains(key) || !root[key].is_string()) fail(fmt::format("no \"{}\"", key));
    const std::string text = root[key].get<std::string>();
    uint64_t bits = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), bits, 16);
    if (error != std::errc() || end != text.data() + text.size())
      fail(fmt::format("\"{}\" is not 16 hexadecimal digits", key));
    return std::bit_cast<double>(bits);
  };
  PerplexitySums sums;
  sums.n_windows = integer("windows");
  sums.n_tokens = integer("tokens");
  sums.n_bytes = integer("bytes");
  sums.nll = real("nll_bits");
  sums.nll_squared = real("nll_squared_bits");
  return sums;
}

void PerplexityState::save(const PerplexitySums& sums) const {
  if (path_.empty()) return;
  const nlohmann::ordered_json root = {{"format", kFormat},
                                       {"identity", identity_},
                                       {"windows", sums.n_windows},
                                       {"tokens", sums.n_tokens},
                                       {"bytes", sums.n_bytes},
                                       {"nll_bits", bits_of(sums.nll)},
                                       {"nll_squared_bits", bits_of(sums.nll_squared)}};
  const std::string text =
      root.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
  AtomicFile file(path_, true);
  file.write(std::as_bytes(std::span(text.data(), text.size())));
  file.commit();
}

}  // namespace ts::cli
