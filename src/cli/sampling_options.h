/// How the next token is chosen, from the command line or the chat's /set.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <tensorsharp/engine.hpp>

#include "cli/option_parser.h"

namespace ts::cli {

class SamplingArguments {
 public:
  void add(OptionParser& options);
  /// Throws InvalidArgument for options that contradict each other.
  void check() const;
  /// What was asked for, over what the model recommends.
  SamplingOptions apply(SamplingOptions recommended) const;

  bool greedy = false;
  std::optional<float> temperature, top_p, min_p, typical_p;
  std::optional<float> repeat_penalty, presence_penalty, frequency_penalty;
  std::optional<int64_t> top_k, penalty_window;
  std::optional<uint64_t> seed;
  std::optional<std::vector<std::string>> order;
};

/// Sets one option of a chat by its name ("temp", "top_k", ...). False when there is no such name;
/// throws InvalidArgument when the value is none.
bool set_sampling_option(SamplingOptions& options, std::string_view name, std::string_view value);
/// Throws InvalidArgument naming the first option that is out of its range.
void check_sampling(const SamplingOptions& options, int64_t n_vocab);
/// "temp 0.7, top_k 40, ..." for /set without arguments.
std::string describe_sampling(const SamplingOptions& options);

}  // namespace ts::cli
