// BoolQ (Clark et al. 2019) as records of query ("Passage: ...\nQuestion: ...?"), choices no and
// yes, and gold.
#include "eval/tasks/formats.h"

namespace ts {
namespace {

bool is_boolq(const TaskRecord& first) {
  return is_query_record(first) && first.text("query").starts_with("Passage: ") &&
         first.fields()["choices"] == nlohmann::json({"no", "yes"});
}

ChoiceItem read_boolq(const TaskRecord& record) {
  return query_item(record, "\nAnswer:");
}

}  // namespace

const TaskFormat kBoolQFormat = {
    "boolq", "BoolQ records (query, choices, gold): \" no\" or \" yes\" after \"Answer:\"",
    is_boolq, read_boolq};

}  // namespace ts
