// CommonsenseQA (Talmor et al. 2019) as records whose query lists the choices and ends in
// "Answer:"; the choices themselves are the letters.
#include "eval/tasks/formats.h"

namespace ts {
namespace {

bool is_commonsense_qa(const TaskRecord& first) {
  return is_query_record(first) && first.text("query").ends_with("Answer:");
}

ChoiceItem read_commonsense_qa(const TaskRecord& record) {
  return query_item(record, "");
}

}  // namespace

const TaskFormat kCommonsenseQaFormat = {"commonsense_qa",
                                         "CommonsenseQA and other records whose query ends in "
                                         "\"Answer:\": the choice (a letter) after it",
                                         is_commonsense_qa, read_commonsense_qa};

}  // namespace ts
