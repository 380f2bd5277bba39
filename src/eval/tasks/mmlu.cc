// MMLU (Hendrycks et al. 2021): tables of question, four choices and answer, one per subject, with
// five solved examples per subject in a table of their own. Three headers are in use: "question, A,
// B, C, D, answer", "question, choice0..choice3, answer" and none at all; the answer is a letter or
// a number from 0.
#include <algorithm>

#include <fmt/format.h>

#include "eval/tasks/formats.h"

namespace ts {
namespace {

using Columns = std::vector<const char*>;  // question, choices, answer
const Columns kMmluLetters = {"question", "A", "B", "C", "D", "answer"};
const Columns kMmluNumbers = {"question", "choice0", "choice1", "choice2", "choice3", "answer"};
const Columns kMmluBare = {"0", "1", "2", "3", "4", "5"};

const Columns* mmlu_columns(const TaskRecord& record) {
  for (const Columns* columns : {&kMmluLetters, &kMmluNumbers, &kMmluBare}) {
    const auto has = [&](const char* key) { return record.has(key); };
    if (record.fields().size() == columns->size() &&
        std::all_of(columns->begin(), columns->end(), has))
      return columns;
  }
  return nullptr;
}

bool is_mmlu(const TaskRecord& first) {
  return mmlu_columns(first) != nullptr;
}

ChoiceItem read_mmlu(const TaskRecord& record) {
  const Columns* columns = mmlu_columns(record);
  if (columns == nullptr) record.fail("question", "the same columns as in the first row");
  std::vector<std::string> choices;
  for (size_t i = 1; i <= 4; ++i)
    choices.push_back(record.text((*columns)[i]));
  return lettered_item(record.text((*columns)[0]), choices,
                       record.letter_or_index((*columns)[5], choices.size()));
}

std::string mmlu_preamble(std::string_view subject) {
  std::string words(subject);
  std::replace(words.begin(), words.end(), '_', ' ');
  return fmt::format("The following are multiple choice questions (with answers) about {}.\n\n",
                     words);
}

}  // namespace

const TaskFormat kMmluFormat = {
    "mmlu",  "MMLU tables: the letter after \"Answer:\", 5 examples of the subject",
    is_mmlu, read_mmlu,
    5,       mmlu_preamble};

}  // namespace ts
