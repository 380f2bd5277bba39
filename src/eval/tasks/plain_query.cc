// OpenBookQA, COPA and any other records of query, choices and gold: the choice goes on where the
// query ends.
#include "eval/tasks/formats.h"

namespace ts {
namespace {

bool is_plain_query(const TaskRecord& first) {
  return is_query_record(first);
}

ChoiceItem read_plain_query(const TaskRecord& record) {
  return query_item(record, "");
}

}  // namespace

const TaskFormat kPlainQueryFormat = {
    "query",
    "OpenBookQA, COPA and other records (query, choices, gold): the choice after the query",
    is_plain_query, read_plain_query};

}  // namespace ts
