// WinoGrande as released: a sentence with "_" where one of two options goes; the answer is "1" or
// "2". What follows the blank is scored after each filled-in beginning.
#include "eval/tasks/formats.h"

namespace ts {
namespace {

bool is_winogrande_original(const TaskRecord& first) {
  return first.has_all({"sentence", "option1", "option2", "answer"});
}

ChoiceItem read_winogrande_original(const TaskRecord& record) {
  const std::string& sentence = record.text("sentence");
  const size_t gap = sentence.find('_');
  if (gap == std::string::npos || trimmed(sentence.substr(gap + 1)).empty())
    record.fail("sentence", "a text with \"_\" and something after it");
  ChoiceItem item;
  for (const char* option : {"option1", "option2"})
    item.contexts.push_back(sentence.substr(0, gap) + trimmed(record.text(option)));
  item.continuations = {" " + trimmed(sentence.substr(gap + 1))};
  const std::string& answer = record.text("answer");
  if (answer != "1" && answer != "2") record.fail("answer", "\"1\" or \"2\"");
  item.answer = answer == "1" ? 0 : 1;
  return item;
}

}  // namespace

const TaskFormat kWinoGrandeOriginalFormat = {
    "winogrande_original", "WinoGrande as released (sentence, option1, option2, answer)",
    is_winogrande_original, read_winogrande_original};

}  // namespace ts
