// ARC (Clark et al. 2018) as records of query, choices and gold: "Question: ...", then "\nAnswer:".
#include "eval/tasks/formats.h"

namespace ts {
namespace {

bool is_arc(const TaskRecord& first) {
  return is_query_record(first) && first.text("query").starts_with("Question: ");
}

ChoiceItem read_arc(const TaskRecord& record) {
  return query_item(record, "\nAnswer:");
}

}  // namespace

const TaskFormat kArcFormat = {
    "arc",
    "ARC records (query, choices, gold): the answer's text after \"Question: ...\\nAnswer:\"",
    is_arc, read_arc};

}  // namespace ts
