// ARC and OpenBookQA as AI2 released them: "question" holds a stem and labelled choices,
// "answerKey" the label of the right one.
#include <algorithm>

#include "eval/tasks/formats.h"

namespace ts {
namespace {

bool is_arc_original(const TaskRecord& first) {
  return first.has_all({"question", "answerKey"}) && first.fields()["question"].is_object() &&
         first.object("question").has_all({"stem", "choices"});
}

ChoiceItem read_arc_original(const TaskRecord& record) {
  const TaskRecord question = record.object("question");
  ChoiceItem item;
  item.contexts = {"Question: " + trimmed(question.text("stem")) + "\nAnswer:"};
  const nlohmann::json& choices = question.fields().value("choices", nlohmann::json());
  if (!choices.is_array() || choices.size() < 2 || choices.size() > kMaxChoices)
    question.fail("choices", "a list of 2 to 26 labelled texts");
  const std::string& key = record.text("answerKey");
  size_t found = choices.size();
  for (size_t i = 0; i < choices.size(); ++i) {
    if (!choices[i].is_object()) question.fail("choices", "a list of labelled texts");
    const TaskRecord choice(choices[i], question.where());
    item.continuations.push_back(" " + trimmed(choice.text("text")));
    if (choice.text("label") == key) found = i;
  }
  if (found == choices.size()) record.fail("answerKey", "the label of one of the choices");
  item.answer = found;
  return item;
}

}  // namespace

const TaskFormat kArcOriginalFormat = {
    "arc_original", "ARC and OpenBookQA as released (question.stem, question.choices, answerKey)",
    is_arc_original, read_arc_original};

}  // namespace ts
