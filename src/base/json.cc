#include "base/json.h"

#include <algorithm>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <tensorsharp/error.hpp>

#include "base/quote_text.h"

namespace ts {
namespace {

using Json = nlohmann::json;

/// Offset of the bracket that opens nesting level `depth` (1 = outermost), for messages.
size_t find_depth(std::string_view text, int depth) {
  int level = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') {
        ++i;
      } else if (c == '"') {
        in_string = false;
      }
    } else if (c == '"') {
      in_string = true;
    } else if (c == '{' || c == '[') {
      if (++level == depth) return i;
    } else if (c == '}' || c == ']') {
      --level;
    }
  }
  return 0;
}

/// Receives the library's parse events and builds the value, with a bound on the depth and a check
/// for repeated keys.
class LimitedBuilder : public nlohmann::json_sax<Json> {
 public:
  LimitedBuilder(std::string_view text, std::string_view source, const JsonLimits& limits)
      : text_(text), source_(source), limits_(limits) {}

  Json take() { return std::move(root_); }

  bool null() override { return add(nullptr); }
  bool boolean(bool v) override { return add(v); }
  bool number_integer(number_integer_t v) override { return add(v); }
  bool number_unsigned(number_unsigned_t v) override { return add(v); }
  bool number_float(number_float_t v, const string_t&) override { return add(v); }
  bool string(string_t& v) override { return add(std::move(v)); }
  bool binary(binary_t&) override { return false; }

  bool start_object(size_t) override { return open(Json::object()); }
  bool start_array(size_t) override { return open(Json::array()); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool key(string_t& v) override {
    auto& object = *open_.back();
    auto [it, added] = object.get_ref<Json::object_t&>().try_emplace(v, nullptr);
    if (!added && limits_.refuse_duplicate_keys) {
      throw FormatError(
          fmt::format("{}: the JSON key {} occurs twice in one object", source_, quote_text(v)));
    }
    slot_ = &it->second;
    return true;
  }
  bool parse_error(size_t position, const std::string&,
                   const nlohmann::detail::exception& error) override {
    // The position counts bytes read, the offending one included.
    throw FormatError(fmt::format("{}: not valid JSON at {}: {}", source_,
                                  json_position(text_, position > 0 ? position - 1 : 0),
                                  json_reason(error.what())));
  }

 private:
  template <typename T>
  bool add(T&& value) {
    place(Json(std::forward<T>(value)));
    return true;
  }
  Json* place(Json value) {
    if (open_.empty()) {
      root_ = std::move(value);
      return &root_;
    }
    if (open_.back()->is_object()) {
      *slot_ = std::move(value);
      return slot_;
    }
    auto& array = open_.back()->get_ref<Json::array_t&>();
    array.push_back(std::move(value));
    return &array.back();
  }
  bool open(Json empty) {
    if (static_cast<int>(open_.size()) >= limits_.max_depth) {
      throw FormatError(fmt::format(
          "{}: JSON nested more than {} deep at {}; flatten it", source_, limits_.max_depth,
          json_position(text_, find_depth(text_, limits_.max_depth + 1))));
    }
    // Pointers stay valid: a container does not grow while one of its elements is open.
    open_.push_back(place(std::move(empty)));
    return true;
  }
  bool close() {
    open_.pop_back();
    return true;
  }

  std::string_view text_, source_;
  const JsonLimits& limits_;
  Json root_;
  std::vector<Json*> open_;
  Json* slot_ = nullptr;  ///< where the value of the last key goes
};

}  // namespace

std::string json_position(std::string_view text, size_t offset) {
  offset = std::min(offset, text.size());
  const std::string_view before = text.substr(0, offset);
  const auto line = std::count(before.begin(), before.end(), '\n') + 1;
  const size_t line_start =
      before.rfind('\n') == std::string_view::npos ? 0 : before.rfind('\n') + 1;
  return fmt::format("line {}, column {}", line, offset - line_start + 1);
}

std::string json_reason(std::string_view library_message) {
  // "[json.exception.parse_error.101] parse error at line 1, column 2: syntax error while parsing
  // value - invalid literal; last read: '...'; expected '...'"
  std::string_view reason = library_message;
  const size_t bracket = reason.find("] ");
  if (bracket != std::string_view::npos) reason.remove_prefix(bracket + 2);
  const size_t dash = reason.find(" - ");
  if (dash != std::string_view::npos) reason.remove_prefix(dash + 3);
  return std::string(reason.substr(0, reason.find("; last read")).substr(0, 120));
}

nlohmann::json parse_json_limited(std::string_view text, std::string_view source,
                                  const JsonLimits& limits) {
  if (limits.max_depth < 1 || limits.max_depth > kMaxJsonDepth) {
    throw InternalError(fmt::format("a JSON depth limit of {} is not within 1 to {}",
                                    limits.max_depth, kMaxJsonDepth));
  }
  if (text.size() > limits.max_bytes) {
    throw FormatError(fmt::format("{}: JSON text of {} bytes, more than the {} allowed", source,
                                  text.size(), limits.max_bytes));
  }
  LimitedBuilder builder(text, source, limits);
  Json::sax_parse(text.begin(), text.end(), &builder);
  return builder.take();
}

}  // namespace ts
