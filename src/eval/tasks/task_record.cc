#include "eval/tasks/task_record.h"

#include <algorithm>

#include <fmt/format.h>

#include <tensorsharp/error.hpp>

#include "base/json.h"
#include "base/log.h"
#include "base/quote_text.h"
#include "eval/tasks/csv.h"

namespace ts {
namespace {

constexpr std::string_view kBlankChars = " \t\r\n\f\v";
constexpr JsonLimits kRecordLimits = {.max_depth = 16};

bool is_blank(std::string_view text) noexcept {
  return text.find_first_not_of(kBlankChars) == std::string_view::npos;
}

std::string shown(const nlohmann::json& value) {
  const std::string text = value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  return text.size() > 60 ? quote_text(text, 60) : text;
}

std::string lower_ascii(std::string text) {
  for (char& c : text)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c + 32);
  return text;
}

std::vector<TaskRecord> records_of_table(std::string_view text, const std::string& source) {
  CsvTable table = parse_csv(text, source);
  if (table.n_repaired > 0)
    log_warning(
        fmt::format("{}: quotation marks inside a field are not doubled (rows: {}); such rows are "
                    "split at \",\"",
                    source, table.n_repaired));
  std::vector<std::string> names = table.rows.front().fields;
  const bool header = lower_ascii(names.back()) == "answer";
  for (size_t i = 0; i < names.size(); ++i)
    if (!header || names[i].empty()) names[i] = fmt::to_string(i);
  std::vector<TaskRecord> records;
  for (size_t r = header ? 1 : 0; r < table.rows.size(); ++r) {
    nlohmann::json fields = nlohmann::json::object();
    for (size_t i = 0; i < names.size(); ++i)
      fields[names[i]] = std::move(table.rows[r].fields[i]);
    records.emplace_back(std::move(fields), fmt::format("{}: line {}", source, table.rows[r].line));
  }
  return records;
}

std::vector<TaskRecord> records_of_lines(std::string_view text, const std::string& source) {
  std::vector<TaskRecord> records;
  size_t line = 0;
  while (!text.empty()) {
    ++line;
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view row = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (is_blank(row)) continue;
    const std::string where = fmt::format("{}: line {}", source, line);
    nlohmann::json value = parse_json_limited(row, where, kRecordLimits);
    if (!value.is_object())
      throw FormatError(
          fmt::format("{}: {} where a JSON object was expected", where, shown(value)));
    records.emplace_back(std::move(value), where);
  }
  return records;
}

std::vector<TaskRecord> records_of_array(std::string_view text, const std::string& source) {
  nlohmann::json root = parse_json_limited(text, source, kRecordLimits);
  std::vector<TaskRecord> records;
  for (auto& value : root) {
    const std::string where = fmt::format("{}: element {}", source, records.size());
    if (!value.is_object())
      throw FormatError(
          fmt::format("{}: {} where a JSON object was expected", where, shown(value)));
    records.emplace_back(std::move(value), where);
  }
  return records;
}

}  // namespace

bool TaskRecord::has_all(std::initializer_list<const char*> keys) const {
  return std::all_of(keys.begin(), keys.end(), [this](const char* key) { return has(key); });
}

void TaskRecord::fail(const char* key, std::string_view expected) const {
  throw FormatError(fmt::format("{}: \"{}\" is {}, expected {}", where_, key,
                                has(key) ? shown(fields_[key]) : "missing", expected));
}

const nlohmann::json& TaskRecord::field(const char* key) const {
  if (!has(key)) throw FormatError(fmt::format("{}: the field \"{}\" is missing", where_, key));
  return fields_[key];
}

const std::string& TaskRecord::text_or_empty(const char* key) const {
  if (!field(key).is_string()) fail(key, "a text");
  return field(key).get_ref<const std::string&>();
}

const std::string& TaskRecord::text(const char* key) const {
  const std::string& text = text_or_empty(key);
  if (is_blank(text)) fail(key, "a text that is not empty");
  return text;
}

std::vector<std::string> TaskRecord::texts(const char* key) const {
  const nlohmann::json& list = field(key);
  if (!list.is_array() || list.size() < 2 || list.size() > kMaxChoices)
    fail(key, fmt::format("a list of 2 to {} texts", kMaxChoices));
  std::vector<std::string> out;
  for (const auto& value : list) {
    if (!value.is_string() || is_blank(value.get_ref<const std::string&>()))
      throw FormatError(
          fmt::format("{}: element {} of \"{}\" is {}, expected a text that is not "
                      "empty",
                      where_, out.size(), key, shown(value)));
    out.push_back(value.get<std::string>());
  }
  return out;
}

size_t TaskRecord::index(const char* key, size_t count) const {
  const nlohmann::json& value = field(key);
  uint64_t found = UINT64_MAX;
  if (value.is_number_unsigned()) {
    found = value.get<uint64_t>();
  } else if (value.is_string()) {
    const auto& text = value.get_ref<const std::string&>();
    if (!text.empty() && text.size() <= 2 && text.find_first_not_of("0123456789") == text.npos)
      found = std::stoul(text);
  }
  if (found >= count) fail(key, fmt::format("0 to {}", count - 1));
  return found;
}

size_t TaskRecord::letter_or_index(const char* key, size_t count) const {
  const nlohmann::json& value = field(key);
  if (value.is_string()) {
    std::string_view text = value.get_ref<const std::string&>();
    text.remove_prefix(std::min(text.find_first_not_of(kBlankChars), text.size()));
    text = text.substr(0, text.find_last_not_of(kBlankChars) + 1);
    if (text.size() == 1 && text[0] >= 'A' && static_cast<size_t>(text[0] - 'A') < count)
      return static_cast<size_t>(text[0] - 'A');
    if (text.size() == 1 && text[0] >= '0' && static_cast<size_t>(text[0] - '0') < count)
      return static_cast<size_t>(text[0] - '0');
    fail(key, fmt::format("A to {} or 0 to {}", choice_letter(count - 1), count - 1));
  }
  return index(key, count);
}

TaskRecord TaskRecord::object(const char* key) const {
  if (!field(key).is_object()) fail(key, "an object");
  return {field(key), fmt::format("{}: \"{}\"", where_, key)};
}

std::string choice_letter(size_t index) {
  return std::string(1, static_cast<char>('A' + index));
}

std::vector<TaskRecord> read_task_records(std::string_view text, const std::string& source) {
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);  // a byte-order mark
  const size_t bad = find_invalid_utf8(text);
  if (bad != std::string_view::npos)
    throw FormatError(fmt::format("{}: not UTF-8 at {}\n  Convert the file to UTF-8.", source,
                                  json_position(text, bad)));
  const size_t start = text.find_first_not_of(" \t\r\n");
  if (start == std::string_view::npos)
    throw FormatError(fmt::format("{}: the file is empty", source));
  std::vector<TaskRecord> records = text[start] == '{'   ? records_of_lines(text, source)
                                    : text[start] == '[' ? records_of_array(text, source)
                                                         : records_of_table(text, source);
  if (records.empty()) throw FormatError(fmt::format("{}: the file has no items", source));
  return records;
}

}  // namespace ts
