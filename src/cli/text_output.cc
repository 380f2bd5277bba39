#include "cli/text_output.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include <tensorsharp/error.hpp>

#include "base/quote_text.h"

namespace ts::cli {
namespace {

size_t display_width(std::string_view text) noexcept {
  size_t width = 0;
  for (const char c : text)
    width += (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  return width;
}

int hex_digit(char c) noexcept {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

}  // namespace

std::string printable(std::string_view text, bool keep_lines) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size();) {
    const char c = text[i];
    const size_t n = utf8_char_bytes(text.substr(i));
    size_t hidden = n == 0 ? 1 : steering_char_bytes(text.substr(i));
    if (keep_lines && (c == '\n' || c == '\t')) hidden = 0;
    if (hidden == 0) {
      out.append(text.substr(i, n));
      i += n;
      continue;
    }
    for (const size_t end = i + hidden; i < end; ++i)
      out += fmt::format("\\x{:02x}", static_cast<unsigned char>(text[i]));
  }
  return out;
}

std::string human_bytes(uint64_t bytes) {
  if (bytes < 1000) return fmt::format("{} B", bytes);
  double value = static_cast<double>(bytes);
  const char* unit = "";
  for (const char* next : {"kB", "MB", "GB", "TB", "PB", "EB"}) {
    value /= 1000.0;
    unit = next;
    if (value < 999.95) break;
  }
  return fmt::format("{:.{}f} {}", value, value < 9.995 ? 2 : 1, unit);
}

std::string human_count(uint64_t count) {
  if (count < 100'000) return grouped(count);
  double value = static_cast<double>(count);
  const char* unit = "";
  for (const char* next : {"k", "M", "B", "T"}) {
    value /= 1000.0;
    unit = next;
    if (value < 999.95) break;
  }
  return fmt::format("{:.1f} {}", value, unit);
}

std::string grouped(uint64_t value) {
  std::string digits = std::to_string(value);
  for (size_t at = digits.size(); at > 3;) {
    at -= 3;
    digits.insert(at, 1, ',');
  }
  return digits;
}

std::string human_seconds(double seconds) {
  if (!std::isfinite(seconds) || seconds < 0) return "?";
  if (seconds < 0.1) return fmt::format("{:.1f} ms", seconds * 1000);
  if (seconds < 60) return fmt::format("{:.2f} s", seconds);
  const auto whole = static_cast<uint64_t>(std::min(seconds, 1e15));
  if (whole < 3600) return fmt::format("{} min {:02} s", whole / 60, whole % 60);
  return fmt::format("{} h {:02} min", whole / 3600, whole % 3600 / 60);
}

std::string table(const std::vector<std::vector<std::string>>& rows,
                  const std::vector<size_t>& right) {
  std::vector<size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (size_t i = 0; i < row.size(); ++i)
      widths[i] = std::max(widths[i], display_width(row[i]));
  }
  std::string out;
  for (const auto& row : rows) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) {
      const std::string pad(widths[i] - display_width(row[i]), ' ');
      const bool to_right = std::find(right.begin(), right.end(), i) != right.end();
      if (i > 0) line += "  ";
      line += to_right ? pad + row[i] : row[i] + pad;
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + '\n';
  }
  return out;
}

std::string unescape(std::string_view text, std::string_view option) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\\' || i + 1 == text.size()) {
      out += text[i];
      continue;
    }
    const char c = text[i + 1];
    const size_t found = std::string_view("ntr0\\\"").find(c);
    if (found != std::string_view::npos) {
      out += "\n\t\r\0\\\""[found];
      ++i;
    } else if (c == 'x') {
      if (i + 3 >= text.size() || hex_digit(text[i + 2]) < 0 || hex_digit(text[i + 3]) < 0)
        throw InvalidArgument(
            fmt::format("{}: \\x in {} wants two hexadecimal digits; a backslash itself is \\\\",
                        option, quote_text(text)));
      out += static_cast<char>(hex_digit(text[i + 2]) * 16 + hex_digit(text[i + 3]));
      i += 3;
    } else {
      out += '\\';
    }
  }
  return out;
}

}  // namespace ts::cli
