#include <fmt/format.h>

#include <tensorsharp/error.hpp>

#include "base/quote_text.h"
#include "eval/tasks/formats.h"

namespace ts {

const std::vector<const TaskFormat*>& task_formats() {
  // The narrower ones first: the last row takes what the others leave.
  static const std::vector<const TaskFormat*> formats = {&kMmluFormat,
                                                         &kCmmluFormat,
                                                         &kMmluProFormat,
                                                         &kHellaSwagFormat,
                                                         &kAquaFormat,
                                                         &kFilledContextFormat,
                                                         &kWinoGrandeOriginalFormat,
                                                         &kArcOriginalFormat,
                                                         &kBoolQOriginalFormat,
                                                         &kBoolQFormat,
                                                         &kCommonsenseQaFormat,
                                                         &kPiqaFormat,
                                                         &kArcFormat,
                                                         &kPlainQueryFormat};
  return formats;
}

ParsedTask parse_choice_task(std::string_view text, const std::string& source) {
  const std::vector<TaskRecord> records = read_task_records(text, source);
  ParsedTask task;
  for (const TaskFormat* format : task_formats()) {
    if (format->recognises(records.front())) {
      task.format = format;
      break;
    }
  }
  if (task.format == nullptr) {
    std::string names, fields;
    for (const TaskFormat* format : task_formats())
      names += (names.empty() ? "" : ", ") + std::string(format->name);
    for (const auto& [key, value] : records.front().fields().items())
      if (fields.size() < 120) fields += (fields.empty() ? "" : ", ") + quote_text(key, 20);
    const bool generated = records.front().has_all({"question", "answer"});
    throw Unsupported(fmt::format(
        "{}: no task format has the fields {} of its first record\n  Known are: {}.{}", source,
        fields, names, generated ? " Questions with worked answers go to 'eval gsm8k'." : ""));
  }
  task.items.reserve(records.size());
  for (const TaskRecord& record : records) {
    task.items.push_back(task.format->read(record));
    task.items.back().where = record.where();
  }
  return task;
}

}  // namespace ts
