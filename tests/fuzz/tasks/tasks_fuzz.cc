// Any bytes given as a task file are either refused with a ts::Error or give items that can be
// scored: two or more choices, none without a text, and the right one among them.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include <tensorsharp/error.hpp>

#include "eval/gsm8k.h"
#include "eval/tasks/choice_task.h"

namespace {

void check_choices(std::string_view text) {
  const ts::ParsedTask task = ts::parse_choice_task(text, "input");
  if (task.format == nullptr || task.items.empty()) std::abort();
  for (const ts::ChoiceItem& item : task.items) {
    if (item.n_choices() < 2 || item.answer >= item.n_choices()) std::abort();
    for (size_t i = 0; i < item.n_choices(); ++i)
      if (item.continuation(i).size() < 2) std::abort();
  }
}

void check_problems(std::string_view text) {
  for (const ts::WordProblem& problem : ts::parse_word_problems(text, "input")) {
    if (ts::canonical_number(problem.answer) != problem.answer) std::abort();
    if (!ts::judge_solution(problem, "#### " + problem.answer, ts::StopReason::kEndOfText).right)
      std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  for (void (*check)(std::string_view) : {check_choices, check_problems}) {
    try {
      check(text);
    } catch (const ts::Error&) {
    }
  }
  static_cast<void>(ts::final_number(text));
  return 0;
}
