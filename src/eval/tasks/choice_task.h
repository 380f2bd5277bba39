/// Multiple-choice tasks: items with a few possible continuations, one of which is right.
///
/// Each format of task file is one file of this folder and one row in registry.cc; the format of a
/// file is recognised from its first record.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "eval/tasks/task_record.h"

namespace ts {

struct ChoiceItem {
  std::string subject;  ///< empty = none; the file's name stands for it
  /// What the model has read before the choice: one text for all choices, or one per choice.
  std::vector<std::string> contexts;
  /// What is scored: one text per choice, or one for all choices. Where a blank separates it from
  /// the context, the blank is its first character.
  std::vector<std::string> continuations;
  size_t answer = 0;       ///< index of the right choice
  std::string where = {};  ///< its record, for messages

  size_t n_choices() const noexcept { return std::max(contexts.size(), continuations.size()); }
  const std::string& context(size_t choice) const {
    return contexts[contexts.size() == 1 ? 0 : choice];
  }
  const std::string& continuation(size_t choice) const {
    return continuations[continuations.size() == 1 ? 0 : choice];
  }
};

struct TaskFormat {
  std::string_view name;     ///< "arc"
  std::string_view summary;  ///< one line for the documentation
  /// Looks at the fields of the first record only.
  bool (*recognises)(const TaskRecord& first);
  /// FormatError naming the record and the field.
  ChoiceItem (*read)(const TaskRecord& record);
  /// Solved examples in front of every item, from the file of examples; usual number.
  int default_shots = 0;
  /// Text in front of everything else; null = none.
  std::string (*preamble)(std::string_view subject) = nullptr;
};

/// All formats, in the order in which they are tried.
const std::vector<const TaskFormat*>& task_formats();

/// Items of one text. `source` opens messages. Errors: FormatError; Unsupported when no format
/// recognises the records.
struct ParsedTask {
  const TaskFormat* format = nullptr;
  std::vector<ChoiceItem> items;
};
ParsedTask parse_choice_task(std::string_view text, const std::string& source);

struct TaskFile {
  std::filesystem::path path;
  std::string sha256;
};

struct ChoiceTask {
  const TaskFormat* format = nullptr;
  std::vector<ChoiceItem> items;  ///< with their subjects; examples are in the contexts already
  int shots = 0;
  std::vector<TaskFile> files;     ///< the items' files
  std::vector<TaskFile> examples;  ///< the files the examples came from
  /// Of the only file, or of the lines "SHA-256, two blanks, file name" of all files of a folder in
  /// the order of their names.
  std::string sha256;
};

struct ChoiceTaskOptions {
  std::optional<int> shots;        ///< none = the format's usual number
  std::filesystem::path examples;  ///< file of examples; empty = the one beside the task's file
  uint64_t limit = UINT64_MAX;     ///< items in all, from the front
  uint64_t subject_limit = UINT64_MAX;  ///< items of each file
};

/// Reads a task file, or a folder of them: then every file NAME_test.csv, NAME_val.csv or, in a
/// sub-folder test/ or val/, NAME.csv (files .jsonl and .json likewise) is one subject. Examples
/// come from NAME_dev.csv beside it or dev/NAME.csv. Errors: FormatError, IoError, Unsupported,
/// InvalidArgument (more examples than there are, files of different formats).
ChoiceTask load_choice_task(const std::filesystem::path& path, const ChoiceTaskOptions& options);

/// "Question text\nA. first\nB. second\nAnswer:", to be followed by " A" or another letter.
ChoiceItem lettered_item(const std::string& question, const std::vector<std::string>& choices,
                         size_t answer, std::string_view cue = "Answer:");
/// The records that carry `query`, `choices` and `gold`, with a text between query and choice.
ChoiceItem query_item(const TaskRecord& record, const std::string& after_query);
/// Whether the record carries them.
bool is_query_record(const TaskRecord& record);

/// `text` without blanks at either end, and at its end alone.
std::string trimmed(std::string_view text);
std::string trimmed_end(std::string_view text);

}  // namespace ts
