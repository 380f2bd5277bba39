// MMLU-Pro (Wang et al. 2024): up to ten choices. Fields: question or prompt, options or choices,
// answer (a letter), and the category, in the record or in its "meta".
#include "eval/tasks/formats.h"

namespace ts {
namespace {

bool is_mmlu_pro(const TaskRecord& first) {
  return (first.has_all({"prompt", "choices", "answer", "meta"}) ||
          first.has_all({"question", "options", "answer", "category"}));
}

ChoiceItem read_mmlu_pro(const TaskRecord& record) {
  const bool released = record.has("question");
  const auto choices = record.texts(released ? "options" : "choices");
  ChoiceItem item = lettered_item(record.text(released ? "question" : "prompt"), choices,
                                  record.letter_or_index("answer", choices.size()));
  item.subject = released ? record.text("category") : record.object("meta").text("category");
  return item;
}

}  // namespace

const TaskFormat kMmluProFormat = {
    "mmlu_pro", "MMLU-Pro records: the letter after \"Answer:\", without examples", is_mmlu_pro,
    read_mmlu_pro};

}  // namespace ts
