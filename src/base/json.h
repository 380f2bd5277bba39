/// Parsing of JSON text that comes from outside: files, requests, tool output.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

namespace ts {

struct JsonLimits {
  int max_depth = 64;  ///< arrays and objects inside each other; 1 to kMaxJsonDepth
  size_t max_bytes = size_t{256} << 20;
  bool refuse_duplicate_keys = false;  ///< otherwise the last value of a key counts
};
inline constexpr int kMaxJsonDepth = 128;

/// Parses exactly one JSON value (RFC 8259, UTF-8, no comments). The parser does not recurse, so
/// depth costs no stack. `source` (a file or field name) opens every message.
/// Throws FormatError, with line and column, on bad syntax, bad UTF-8, numbers out of range,
/// trailing text, a text or nesting beyond the limits and, if asked, repeated keys.
nlohmann::json parse_json_limited(std::string_view text, std::string_view source,
                                  const JsonLimits& limits = {});

/// "line 3, column 14" (both from 1, columns in bytes) of a byte offset.
std::string json_position(std::string_view text, size_t offset);
/// The core of a parser message of the JSON library, without codes, positions and echoed input.
std::string json_reason(std::string_view library_message);

}  // namespace ts
