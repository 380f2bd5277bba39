// WinoGrande (Sakaguchi et al. 2020) and the Winograd schemas as records with one context per
// choice (the name filled in) and one continuation that is scored after each of them.
#include "eval/tasks/formats.h"

namespace ts {
namespace {

bool is_filled_context(const TaskRecord& first) {
  return first.has_all({"context_options", "continuation", "gold"});
}

ChoiceItem read_filled_context(const TaskRecord& record) {
  ChoiceItem item;
  for (const std::string& context : record.texts("context_options"))
    item.contexts.push_back(trimmed_end(context));
  item.continuations = {" " + trimmed(record.text("continuation"))};
  item.answer = record.index("gold", item.contexts.size());
  return item;
}

}  // namespace

const TaskFormat kFilledContextFormat = {"filled_context",
                                         "WinoGrande and Winograd records (context_options, "
                                         "continuation, gold): the shared continuation "
                                         "after each filled-in context",
                                         is_filled_context, read_filled_context};

}  // namespace ts
