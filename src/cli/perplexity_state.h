/// The file that lets an interrupted perplexity run go on.
#pragma once

#include <filesystem>
#include <optional>

#include <nlohmann/json.hpp>

#include "eval/perplexity.h"

namespace ts::cli {

class PerplexityState {
 public:
  /// `identity`: everything the result depends on; a file made with another one is refused with an
  /// InvalidArgument that names the first difference. An empty path keeps nothing.
  PerplexityState(std::filesystem::path path, nlohmann::ordered_json identity);

  /// Sums of an earlier run, if the file exists. FormatError when it is damaged.
  std::optional<PerplexitySums> load() const;
  void save(const PerplexitySums& sums) const;

 private:
  std::filesystem::path path_;
  nlohmann::ordered_json identity_;
};

}  // namespace ts::cli
