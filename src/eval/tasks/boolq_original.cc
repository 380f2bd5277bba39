// BoolQ as released: question, passage, and the answer as true or false.
#include "eval/tasks/formats.h"

namespace ts {
namespace {

bool is_boolq_original(const TaskRecord& first) {
  return first.has_all({"question", "passage", "answer"}) && first.fields()["answer"].is_boolean();
}

ChoiceItem read_boolq_original(const TaskRecord& record) {
  ChoiceItem item;
  item.contexts = {"Passage: " + trimmed(record.text("passage")) +
                   "\nQuestion: " + trimmed(record.text("question")) + "?\nAnswer:"};
  item.continuations = {" no", " yes"};
  if (!record.has("answer") || !record.fields()["answer"].is_boolean())
    record.fail("answer", "true or false");
  item.answer = record.fields()["answer"].get<bool>() ? 1 : 0;
  return item;
}

}  // namespace

const TaskFormat kBoolQOriginalFormat = {"boolq_original",
                                         "BoolQ as released (question, passage, answer)",
                                         is_boolq_original, read_boolq_original};

}  // namespace ts
