/// One record of a task file: a line of JSON, or a row of a table under the names of its header.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

namespace ts {

class TaskRecord {
 public:
  /// `fields` is an object. `where` opens every message: "arc.jsonl: line 12".
  TaskRecord(nlohmann::json fields, std::string where)
      : fields_(std::move(fields)), where_(std::move(where)) {}

  bool has(const char* key) const { return fields_.contains(key); }
  bool has_all(std::initializer_list<const char*> keys) const;
  const std::string& where() const noexcept { return where_; }
  const nlohmann::json& fields() const noexcept { return fields_; }

  // All throw FormatError naming record, field, what was found and what was expected.
  /// A text that is more than blanks.
  const std::string& text(const char* key) const;
  /// A text that may be empty.
  const std::string& text_or_empty(const char* key) const;
  /// Two or more texts that are more than blanks.
  std::vector<std::string> texts(const char* key) const;
  /// An index below `count`: a number, or a text of digits.
  size_t index(const char* key, size_t count) const;
  /// A letter below `count` from 'A', or an index as above.
  size_t letter_or_index(const char* key, size_t count) const;
  /// A record inside this one.
  TaskRecord object(const char* key) const;
  [[noreturn]] void fail(const char* key, std::string_view expected) const;

 private:
  const nlohmann::json& field(const char* key) const;

  nlohmann::json fields_;
  std::string where_;
};

/// Most choices that an item can have: they are lettered from A.
inline constexpr size_t kMaxChoices = 26;
/// "A" for 0.
std::string choice_letter(size_t index);

/// All records of a file: JSON lines, one JSON array of objects, or a table with or without a
/// header (without one, the columns are "0", "1", ...). FormatError: not UTF-8, bad JSON, no
/// record.
std::vector<TaskRecord> read_task_records(std::string_view text, const std::string& source);

}  // namespace ts
