#include "model/required_features.h"

#include <variant>

#include <fmt/format.h>

#include <tensorsharp/error.hpp>

#include "base/quote_text.h"

namespace ts {
namespace {

constexpr std::string_view kRequiresKey = "tensorsharp.requires";

}  // namespace

std::vector<std::string> read_required_features(const Metadata& metadata) {
  const MetadataValue* value = metadata.find(kRequiresKey);
  if (value == nullptr) return {};
  std::vector<std::string> features;
  if (const auto* text = std::get_if<std::string>(&value->value)) {
    features = {*text};
  } else {
    features = *metadata.get_strings(kRequiresKey);  // FormatError for any other type
  }
  for (const std::string& feature : features) {
    if (feature == kRequiresOutputRotation) continue;
    throw Unsupported(
        fmt::format("{}: {} names {}, which this version does not have (it has {}); use a newer "
                    "version",
                    metadata.source(), kRequiresKey, quote_text(feature), kRequiresOutputRotation));
  }
  return features;
}

}  // namespace ts
