#include "eval/gsm8k.h"

#include <algorithm>

#include <fmt/format.h>

#include <tensorsharp/error.hpp>

#include "eval/tasks/choice_task.h"

namespace ts {
namespace {

constexpr std::string_view kAnswerMark = "####";

bool is_digit(char c) noexcept {
  return c >= '0' && c <= '9';
}

/// Length of the number at the start of `text`: sign, digits with commas between groups of three,
/// fraction. 0 = none.
size_t number_length(std::string_view text) noexcept {
  size_t i = 0;
  if (i < text.size() && (text[i] == '-' || text[i] == '+')) ++i;
  if (i < text.size() && text[i] == '$') ++i;
  const size_t digits = i;
  while (i < text.size() && is_digit(text[i]))
    ++i;
  if (i == digits) {
    if (i + 1 >= text.size() || text[i] != '.' || !is_digit(text[i + 1])) return 0;
  }
  // "1,234" is one number, "1,2" are two.
  const auto is_group = [&] {
    return i + 3 < text.size() && text[i] == ',' && is_digit(text[i + 1]) &&
           is_digit(text[i + 2]) && is_digit(text[i + 3]) &&
           (i + 4 >= text.size() || !is_digit(text[i + 4]));
  };
  if (i - digits <= 3)
    while (is_group())
      i += 4;
  if (i + 1 < text.size() && text[i] == '.' && is_digit(text[i + 1])) {
    ++i;
    while (i < text.size() && is_digit(text[i]))
      ++i;
  }
  return i;
}

/// Where a number may begin: not inside a word or another number.
bool may_begin(std::string_view text, size_t at) noexcept {
  if (!is_digit(text[at]) && text[at] != '-' && text[at] != '+' && text[at] != '$' &&
      text[at] != '.')
    return false;
  // A minus between two numbers is an operation: "12-3".
  return at == 0 || !(text[at] == '-' || text[at] == '+') ||
         !(is_digit(text[at - 1]) || text[at - 1] == ')');
}

std::string without_calculator_marks(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const size_t open = text.find("<<");
    const size_t close = open == std::string_view::npos ? open : text.find(">>", open);
    if (close == std::string_view::npos) break;
    out += text.substr(0, open);
    text.remove_prefix(close + 2);
  }
  return out + std::string(text);
}

}  // namespace

std::optional<std::string> canonical_number(std::string_view text) {
  const std::string whole = trimmed(text);
  if (whole.empty() || number_length(whole) != whole.size()) return std::nullopt;
  const bool negative = whole[0] == '-';
  std::string digits;
  for (const char c : whole)
    if (is_digit(c) || c == '.') digits += c;
  if (digits.find('.') != std::string::npos) {
    digits.erase(digits.find_last_not_of('0') + 1);
    if (digits.ends_with('.')) digits.pop_back();
  }
  const size_t zeros = std::min(digits.find_first_not_of('0'), digits.size());
  digits.erase(0, zeros);
  if (digits.empty() || digits[0] == '.') digits.insert(0, "0");
  return negative && digits != "0" ? "-" + digits : digits;
}

std::optional<std::string> final_number(std::string_view text) {
  const size_t mark = text.rfind(kAnswerMark);
  const bool marked = mark != std::string_view::npos;
  if (marked) text.remove_prefix(mark + kAnswerMark.size());
  std::optional<std::string> last;
  for (size_t i = 0; i < text.size();) {
    const size_t length = may_begin(text, i) ? number_length(text.substr(i)) : 0;
    if (length == 0) {
      ++i;
      continue;
    }
    last = canonical_number(text.substr(i, length));
    if (marked) break;
    i += length;
  }
  return last;
}

std::vector<WordProblem> parse_word_problems(std::string_view text, const std::string& source) {
  std::vector<WordProblem> problems;
  for (const TaskRecord& record : read_task_records(text, source)) {
    const std::string& answer = record.text("answer");
    const size_t mark = answer.rfind(kAnswerMark);
    const auto number = mark == std::string::npos
                            ? std::nullopt
                            : canonical_number(answer.substr(mark + kAnswerMark.size()));
    if (!number) record.fail("answer", "a solution that ends in \"#### number\"");
    problems.push_back(
        {trimmed(record.text("question")), without_calculator_marks(trimmed(answer)), *number});
  }
  return problems;
}

std::string problem_prompt(std::span<const WordProblem> examples, const WordProblem& problem) {
  std::string text;
  for (const WordProblem& example : examples)
    text += "Question: " + example.question + "\nAnswer: " + example.solution + "\n\n";
  return text + "Question: " + problem.question + "\nAnswer:";
}

std::vector<ChatMessage> problem_chat(std::span<const WordProblem> examples,
                                      const WordProblem& problem) {
  std::vector<ChatMessage> turns;
  for (const WordProblem& example : examples) {
    turns.push_back({"user", example.question});
    turns.push_back({"assistant", example.solution});
  }
  turns.push_back({"user", problem.question});
  return turns;
}

std::vector<std::string> problem_stops() {
  return {"Question:"};
}

ProblemResult judge_solution(const WordProblem& problem, std::string_view solution,
                             StopReason reason) {
  ProblemResult result;
  result.number = final_number(solution);
  result.right = result.number == problem.answer;
  result.cut_off = reason == StopReason::kLength || reason == StopReason::kContextFull;
  return result;
}

}  // namespace ts
