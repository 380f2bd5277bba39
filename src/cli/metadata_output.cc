#include "cli/metadata_output.h"

#include <algorithm>
#include <type_traits>
#include <variant>

#include <fmt/format.h>

#include "base/quote_text.h"

namespace ts::cli {
namespace {

template <typename T>
std::string element_text(const T& element, size_t max_bytes) {
  if constexpr (std::is_same_v<T, std::string>) {
    return quote_text(element, max_bytes);
  } else if constexpr (std::is_floating_point_v<T>) {
    return fmt::format("{:g}", element);
  } else {
    return fmt::format("{}", element);
  }
}

}  // namespace

nlohmann::ordered_json metadata_to_json(const MetadataValue& value, size_t max_elems) {
  return std::visit(
      [&](const auto& v) -> nlohmann::ordered_json {
        using T = std::decay_t<decltype(v)>;
        if constexpr (std::is_same_v<T, MetadataArray>) {
          return std::visit(
              [&](const auto& elems) -> nlohmann::ordered_json {
                auto list = nlohmann::ordered_json::array();
                for (size_t i = 0; i < std::min(elems.size(), max_elems); ++i) {
                  // vector<bool> has no real references.
                  const typename std::decay_t<decltype(elems)>::value_type element = elems[i];
                  list.push_back(element);
                }
                if (elems.size() <= max_elems) return list;
                return {{"type", describe_type(value)},
                        {"length", elems.size()},
                        {"first", std::move(list)}};
              },
              v.data);
        } else {
          return v;
        }
      },
      value.value);
}

std::string metadata_to_text(const MetadataValue& value, size_t max_elems, size_t max_bytes) {
  return std::visit(
      [&](const auto& v) -> std::string {
        using T = std::decay_t<decltype(v)>;
        if constexpr (std::is_same_v<T, MetadataArray>) {
          return std::visit(
              [&](const auto& elems) {
                std::string out = "[";
                for (size_t i = 0; i < std::min(elems.size(), max_elems); ++i) {
                  const typename std::decay_t<decltype(elems)>::value_type element = elems[i];
                  out += (i > 0 ? ", " : "") + element_text(element, max_bytes);
                }
                return out + (elems.size() > max_elems ? ", ...]" : "]");
              },
              v.data);
        } else {
          return element_text(v, max_bytes);
        }
      },
      value.value);
}

}  // namespace ts::cli
