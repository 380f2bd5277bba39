/// GSM8K (Cobbe et al. 2021): school problems whose answer is a number. The model writes a
/// solution; the number in it is compared with the right one.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <tensorsharp/engine.hpp>

namespace ts {

struct WordProblem {
  std::string question;
  std::string solution;  ///< worked, without the marks <<...>> of the calculator
  std::string answer;    ///< as canonical_number() writes it
};

/// Records of question and answer; the answer ends in "#### number". FormatError naming the record.
std::vector<WordProblem> parse_word_problems(std::string_view text, const std::string& source);

/// A decimal number in one way only: no thousands separators, no plus, no needless zeros; "-0" is
/// "0". Nothing when the text is not one number ("$1,234.50" is: "1234.5").
std::optional<std::string> canonical_number(std::string_view text);
/// The number a solution ends with: the first after the last "####" if there is one, else the last
/// number in the text. A final point is the end of a sentence.
std::optional<std::string> final_number(std::string_view text);

/// "Question: ...\nAnswer:" after the solved examples.
std::string problem_prompt(std::span<const WordProblem> examples, const WordProblem& problem);
/// The same as turns of a conversation.
std::vector<ChatMessage> problem_chat(std::span<const WordProblem> examples,
                                      const WordProblem& problem);
/// A new question means that the solution is over.
std::vector<std::string> problem_stops();

struct ProblemResult {
  std::optional<std::string> number;  ///< what the solution ends with
  bool right = false;
  bool cut_off = false;  ///< the solution reached the limit of tokens or the end of the context
};
ProblemResult judge_solution(const WordProblem& problem, std::string_view solution,
                             StopReason reason);

}  // namespace ts
