// Forms of items that several formats share.
#include <algorithm>

#include "eval/tasks/choice_task.h"

namespace ts {
namespace {

constexpr std::string_view kTrimmed = " \t\r\n\f\v";

}  // namespace

std::string trimmed_end(std::string_view text) {
  return std::string(text.substr(0, text.find_last_not_of(kTrimmed) + 1));
}

std::string trimmed(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of(kTrimmed), text.size()));
  return trimmed_end(text);
}

ChoiceItem lettered_item(const std::string& question, const std::vector<std::string>& choices,
                         size_t answer, std::string_view cue) {
  ChoiceItem item;
  std::string context = trimmed(question);
  for (size_t i = 0; i < choices.size(); ++i) {
    context += "\n" + choice_letter(i) + ". " + choices[i];
    item.continuations.push_back(" " + choice_letter(i));
  }
  item.contexts = {context + "\n" + std::string(cue)};
  item.answer = answer;
  return item;
}

bool is_query_record(const TaskRecord& record) {
  return record.has_all({"query", "choices", "gold"});
}

ChoiceItem query_item(const TaskRecord& record, const std::string& after_query) {
  ChoiceItem item;
  item.contexts = {trimmed_end(record.text("query")) + after_query};
  for (const std::string& choice : record.texts("choices"))
    item.continuations.push_back(" " + trimmed(choice));
  item.answer = record.index("gold", item.continuations.size());
  return item;
}

}  // namespace ts
