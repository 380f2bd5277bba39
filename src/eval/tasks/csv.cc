#include "eval/tasks/csv.h"

#include <algorithm>
#include <optional>

#include <fmt/format.h>

#include <tensorsharp/error.hpp>

namespace ts {
namespace {

constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

/// The rest of a line without its end; `rest` moves on to the next line.
std::string_view take_line(std::string_view& rest) {
  const size_t end = std::min(rest.find('\n'), rest.size());
  std::string_view line = rest.substr(0, end);
  rest.remove_prefix(std::min(end + 1, rest.size()));
  if (line.ends_with('\r')) line.remove_suffix(1);
  return line;
}

/// One record by the rules of RFC 4180, which may go over several lines. Nothing when it breaks
/// them; `rest` is then unchanged.
std::optional<std::vector<std::string>> take_record(std::string_view& rest) {
  std::vector<std::string> fields(1);
  for (size_t i = 0;;) {
    std::string& field = fields.back();
    if (i < rest.size() && rest[i] == '"' && field.empty()) {
      for (++i;; ++i) {
        if (i >= rest.size()) return std::nullopt;
        if (rest[i] != '"') {
          field += rest[i];
        } else if (i + 1 < rest.size() && rest[i + 1] == '"') {
          field += rest[++i];
        } else {
          break;
        }
      }
      ++i;
      const std::string_view after = rest.substr(i);
      if (!after.empty() && after[0] != ',' && after[0] != '\n' && !after.starts_with("\r\n"))
        return std::nullopt;
    } else {
      while (i < rest.size() && rest[i] != ',' && rest[i] != '\n')
        field += rest[i++];
      if (field.ends_with('\r') && (i == rest.size() || rest[i] == '\n')) field.pop_back();
    }
    if (i < rest.size() && rest[i] == ',') {
      ++i;
      fields.emplace_back();
      continue;
    }
    if (rest.substr(i).starts_with("\r\n")) ++i;
    rest.remove_prefix(std::min(i + 1, rest.size()));
    return fields;
  }
}

/// A line in which every field but perhaps the last is in quotation marks, and those inside are not
/// doubled.
std::vector<std::string> split_undoubled(std::string_view line) {
  std::vector<std::string> fields;
  if (!line.starts_with('"')) return fields;
  line.remove_prefix(1);
  constexpr std::string_view kBetween = "\",\"";
  for (size_t at; (at = line.find(kBetween)) != std::string_view::npos;) {
    fields.emplace_back(line.substr(0, at));
    line.remove_prefix(at + kBetween.size());
  }
  if (line.ends_with('"')) {
    fields.emplace_back(line.substr(0, line.size() - 1));
    return fields;
  }
  // "text",3
  const size_t at = line.rfind("\",");
  if (at == std::string_view::npos) return {};
  fields.emplace_back(line.substr(0, at));
  fields.emplace_back(line.substr(at + 2));
  return fields;
}

}  // namespace

CsvTable parse_csv(std::string_view text, std::string_view source) {
  if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  CsvTable table;
  size_t line = 1;
  while (!text.empty()) {
    const std::string_view before = text;
    if (take_line(text).empty()) {
      ++line;
      continue;
    }
    text = before;
    const size_t width = table.rows.empty() ? 0 : table.rows.front().fields.size();
    auto fields = take_record(text);
    if (!fields || (width != 0 && fields->size() != width)) {
      std::string_view rest = before;
      auto repaired = split_undoubled(take_line(rest));
      if (width != 0 && repaired.size() == width) {
        fields = std::move(repaired);
        text = rest;
        ++table.n_repaired;
      }
    }
    if (!fields)
      throw FormatError(
          fmt::format("{}: line {}: a quotation mark is not closed, or text follows the closing "
                      "one\n  Inside quotation marks, write \"\" for one of them.",
                      source, line));
    if (width != 0 && fields->size() != width)
      throw FormatError(fmt::format("{}: line {}: {} fields, expected {} as in the first row",
                                    source, line, fields->size(), width));
    table.rows.push_back({line, std::move(*fields)});
    line += static_cast<size_t>(std::count(
        before.begin(), before.begin() + static_cast<std::ptrdiff_t>(before.size() - text.size()),
        '\n'));
  }
  if (table.rows.empty()) throw FormatError(fmt::format("{}: the table is empty", source));
  return table;
}

}  // namespace ts
