// PIQA (Bisk et al. 2020) as records of query, choices and gold; the query, "Question: ...", ends
// with a newline.
#include "eval/tasks/formats.h"

namespace ts {
namespace {

bool is_piqa(const TaskRecord& first) {
  if (!is_query_record(first)) return false;
  const std::string& query = first.text("query");
  return query.starts_with("Question: ") && query.ends_with('\n');
}

ChoiceItem read_piqa(const TaskRecord& record) {
  return query_item(record, "\nAnswer:");
}

}  // namespace

const TaskFormat kPiqaFormat = {
    "piqa", "PIQA records (query, choices, gold): the solution after \"Question: ...\\nAnswer:\"",
    is_piqa, read_piqa};

}  // namespace ts
