#include "cli/sampling_options.h"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <tensorsharp/error.hpp>

#include "base/quote_text.h"
#include "cli/parse_values.h"
#include "runtime/sampler.h"

namespace ts::cli {
namespace {

constexpr double kMaxPenalty = 1000;

const std::vector<std::string>& step_names() {
  static const std::vector<std::string> names = {"penalties", "top_k", "typical",
                                                 "top_p",     "min_p", "temperature"};
  return names;
}

/// "min_p,temperature" -> steps; throws InvalidArgument naming the unknown one.
std::vector<std::string> parse_order(std::string_view text) {
  std::vector<std::string> order;
  while (!text.empty()) {
    const size_t comma = std::min(text.find(','), text.size());
    std::string name(text.substr(0, comma));
    std::replace(name.begin(), name.end(), '-', '_');
    if (name == "temp") name = "temperature";
    if (name == "typical_p") name = "typical";
    if (std::find(step_names().begin(), step_names().end(), name) == step_names().end())
      throw InvalidArgument(fmt::format("--samplers: {} is not one of: {}", quote_text(name),
                                        fmt::join(step_names(), ", ")));
    order.push_back(std::move(name));
    text.remove_prefix(std::min(comma + 1, text.size()));
  }
  return order;
}

/// -1 or nothing = random.
std::optional<uint64_t> parse_seed(std::string_view text) {
  if (text == "-1") return std::nullopt;
  const auto seed = parse_unsigned(text);
  if (!seed)
    throw InvalidArgument(fmt::format(
        "--seed: {} is not a whole number from 0 to 2^64 - 1, or -1 for random", quote_text(text)));
  return seed;
}

/// A float member that /set can change.
struct FloatName {
  std::string_view name;
  float SamplingOptions::*member;
};
constexpr FloatName kFloatNames[] = {
    {"temp", &SamplingOptions::temperature},
    {"temperature", &SamplingOptions::temperature},
    {"top_p", &SamplingOptions::top_p},
    {"min_p", &SamplingOptions::min_p},
    {"typical_p", &SamplingOptions::typical_p},
    {"repeat_penalty", &SamplingOptions::repeat_penalty},
    {"presence_penalty", &SamplingOptions::presence_penalty},
    {"frequency_penalty", &SamplingOptions::frequency_penalty},
};

}  // namespace

void SamplingArguments::add(OptionParser& options) {
  options.group("Sampling");
  options.real("--temp", temperature, 0, 100,
               "temperature; 0 takes the likeliest token (default: the model's, else 0.7)");
  options.integer("--top-k", top_k, 0, INT32_MAX,
                  "keep the K likeliest tokens; 0 = all (default: the model's, else 40)");
  options.real(
      "--top-p", top_p, 0, 1,
      "keep the likeliest tokens that together have this probability (default: the model's, "
      "else 0.95)");
  options.real("--min-p", min_p, 0, 1,
               "keep tokens at least this likely relative to the likeliest (default 0)");
  options.real("--typical-p", typical_p, 0, 1, "locally typical sampling (default 1: off)");
  options.real("--repeat-penalty", repeat_penalty, 1e-3, kMaxPenalty,
               "lower the logits of earlier tokens by this factor (default 1: off)");
  options.real("--presence-penalty", presence_penalty, -kMaxPenalty, kMaxPenalty,
               "subtract this from the logits of tokens seen (default 0)");
  options.real("--frequency-penalty", frequency_penalty, -kMaxPenalty, kMaxPenalty,
               "subtract this for every time a token was seen (default 0)");
  options.integer("--penalty-window", penalty_window, -1, INT32_MAX,
                  "tokens the penalties look back on; -1 = all (default -1)");
  options.checked("--samplers", "LIST",
                  "the steps and their order, any subset of "
                  "penalties,top_k,typical,top_p,min_p,temperature",
                  [this](const std::string& text) {
                    order = parse_order(text);
                    return std::string();
                  });
  options.flag("--greedy", greedy, "always take the likeliest token: --temp 0");
  options.checked("--seed", "N",
                  "seed of the random numbers; the one used is reported (default: random)",
                  [this](const std::string& text) {
                    seed = parse_seed(text);
                    return std::string();
                  });
}

void SamplingArguments::check() const {
  if (greedy && temperature && *temperature > 0)
    throw InvalidArgument("give --greedy or a --temp above 0, not both");
}

SamplingOptions SamplingArguments::apply(SamplingOptions options) const {
  if (temperature) options.temperature = *temperature;
  if (top_k) options.top_k = static_cast<int>(*top_k);
  if (top_p) options.top_p = *top_p;
  if (min_p) options.min_p = *min_p;
  if (typical_p) {
    options.typical_p = *typical_p;
    // The step is not in the default order; asking for it means wanting it.
    if (!order &&
        std::find(options.order.begin(), options.order.end(), "typical") == options.order.end())
      options.order.insert(std::find(options.order.begin(), options.order.end(), "top_p"),
                           "typical");
  }
  if (repeat_penalty) options.repeat_penalty = *repeat_penalty;
  if (presence_penalty) options.presence_penalty = *presence_penalty;
  if (frequency_penalty) options.frequency_penalty = *frequency_penalty;
  if (penalty_window) options.penalty_window = static_cast<int>(*penalty_window);
  if (order) options.order = *order;
  if (greedy) options.temperature = 0;
  if (seed) options.seed = seed;
  return options;
}

bool set_sampling_option(SamplingOptions& options, std::string_view name, std::string_view value) {
  std::string key(name);
  std::replace(key.begin(), key.end(), '-', '_');
  for (const FloatName& known : kFloatNames) {
    if (known.name != key) continue;
    const auto number = parse_real(value);
    if (!number)
      throw InvalidArgument(fmt::format("{}: {} is not a number", key, quote_text(value)));
    options.*known.member = static_cast<float>(*number);
    return true;
  }
  if (key == "top_k" || key == "penalty_window") {
    const auto number = parse_integer(value, INT32_MIN, INT32_MAX);
    if (!number)
      throw InvalidArgument(fmt::format("{}: {} is not a whole number", key, quote_text(value)));
    (key == "top_k" ? options.top_k : options.penalty_window) = static_cast<int>(*number);
    return true;
  }
  if (key == "seed") {
    options.seed = parse_seed(value);
    return true;
  }
  if (key == "samplers") {
    options.order = parse_order(value);
    return true;
  }
  return false;
}

void check_sampling(const SamplingOptions& options, int64_t n_vocab) {
  const Sampler checked(options, n_vocab);
}

std::string describe_sampling(const SamplingOptions& options) {
  return fmt::format(
      "temp {}, top_k {}, top_p {}, min_p {}, typical_p {}, repeat_penalty {}, presence_penalty "
      "{}, frequency_penalty {}, penalty_window {}, samplers {}, seed {}",
      options.temperature, options.top_k, options.top_p, options.min_p, options.typical_p,
      options.repeat_penalty, options.presence_penalty, options.frequency_penalty,
      options.penalty_window, fmt::join(options.order, ","),
      options.seed ? std::to_string(*options.seed) : "random");
}

}  // namespace ts::cli
