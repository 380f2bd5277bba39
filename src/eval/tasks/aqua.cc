// AQuA-RAT (Ling et al. 2017): options "A)text", ..., the right one by its letter.
#include "eval/tasks/formats.h"

namespace ts {
namespace {

bool is_aqua(const TaskRecord& first) {
  return first.has_all({"question", "options", "correct"});
}

ChoiceItem read_aqua(const TaskRecord& record) {
  std::vector<std::string> choices = record.texts("options");
  for (size_t i = 0; i < choices.size(); ++i) {
    const std::string mark = choice_letter(i) + ")";
    if (!choices[i].starts_with(mark))
      record.fail("options", "texts that begin with \"A)\", \"B)\" and so on");
    choices[i] = trimmed(choices[i].substr(mark.size()));
    if (choices[i].empty()) record.fail("options", "a text after every mark");
  }
  return lettered_item(record.text("question"), choices,
                       record.letter_or_index("correct", choices.size()));
}

}  // namespace

const TaskFormat kAquaFormat = {"aqua", "AQuA records: the letter after \"Answer:\"", is_aqua,
                                read_aqua};

}  // namespace ts
