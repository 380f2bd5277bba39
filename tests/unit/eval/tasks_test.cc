// Task files: tables, records, every format, folders; numbers of word problems. The samples are
// ours, in the forms of the published files.
#include <fstream>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <tensorsharp/error.hpp>

#include "eval/gsm8k.h"
#include "eval/tasks/choice_task.h"
#include "eval/tasks/csv.h"
#include "support/error_matchers.h"
#include "support/temp_dir.h"

namespace ts {
namespace {

using test::catch_error;
using Strings = std::vector<std::string>;

ChoiceItem first_item(std::string_view text, std::string_view format) {
  const ParsedTask task = parse_choice_task(text, "sample");
  EXPECT_EQ(task.format->name, format);
  return task.items.at(0);
}

/// The error of reading `text`, which must name the file, a line and `words`.
void expect_refused(std::string_view text, const Strings& words,
                    ErrorCode code = ErrorCode::kFormat) {
  const auto thrown = catch_error([&] { parse_choice_task(text, "sample.file"); });
  EXPECT_EQ(thrown.code, code) << text << "\n" << thrown.message;
  EXPECT_NE(thrown.message.find("sample.file"), std::string::npos) << thrown.message;
  for (const std::string& word : words)
    EXPECT_NE(thrown.message.find(word), std::string::npos) << thrown.message;
}

TEST(Csv, QuotedFieldsLinesAndEnds) {
  const CsvTable table = parse_csv(
      "\xEF\xBB\xBF"
      "a,\"b, c\",\"say \"\"x\"\"\"\r\n\r\n\"two\nlines\",,last\nx,y,z",
      "t.csv");
  ASSERT_EQ(table.rows.size(), 3u);
  EXPECT_EQ(table.rows[0].fields, (Strings{"a", "b, c", "say \"x\""}));
  EXPECT_EQ(table.rows[1].fields, (Strings{"two\nlines", "", "last"}));
  EXPECT_EQ(table.rows[1].line, 3u);
  EXPECT_EQ(table.rows[2].fields, (Strings{"x", "y", "z"}));
  EXPECT_EQ(table.rows[2].line, 5u);
  EXPECT_EQ(table.n_repaired, 0u);
}

TEST(Csv, QuotationMarksThatAreNotDoubled) {
  const CsvTable table = parse_csv(
      "\"q\",\"A\",\"answer\"\n"
      "\"friends who \"stay at home,\" you are\",\"the \"baby booms\" on\",3\n"
      "\"plain\",\"row\",1\n",
      "t.csv");
  EXPECT_EQ(table.n_repaired, 1u);
  EXPECT_EQ(table.rows[1].fields,
            (Strings{"friends who \"stay at home,\" you are", "the \"baby booms\" on", "3"}));
  EXPECT_EQ(table.rows[2].fields, (Strings{"plain", "row", "1"}));
}

TEST(Csv, BadTables) {
  const auto message = [](std::string_view text) {
    const auto thrown = catch_error([&] { parse_csv(text, "t.csv"); });
    EXPECT_EQ(thrown.code, ErrorCode::kFormat);
    return thrown.message;
  };
  EXPECT_NE(message("a,b\nc\n").find("line 2: 1 fields, expected 2"), std::string::npos);
  EXPECT_NE(message("a,b\n\"open,c\n").find("line 2"), std::string::npos);
  EXPECT_NE(message("a,b\n\"x\"y,c\n").find("line 2"), std::string::npos);
  EXPECT_NE(message("a,b\n\"one \"two\" three\",\"x\",\"y\"\n").find("line 2"), std::string::npos);
  EXPECT_NE(message("\n\n").find("empty"), std::string::npos);
}

TEST(TaskFormats, MmluTablesInThreeForms) {
  constexpr const char* kRow = "What is 2 + 2?,3,4,\"5, or 6\",22,";
  for (const auto& [header, answer] : std::vector<std::pair<const char*, const char*>>{
           {"question,A,B,C,D,answer\n", "1"},
           {"question,choice0,choice1,choice2,choice3,answer\n", "1"},
           {"", "B"}}) {
    const std::string text = fmt::format("{}{}{}\n", header, kRow, answer);
    const ChoiceItem item = first_item(text, "mmlu");
    EXPECT_EQ(item.contexts, Strings{"What is 2 + 2?\nA. 3\nB. 4\nC. 5, or 6\nD. 22\nAnswer:"});
    EXPECT_EQ(item.continuations, (Strings{" A", " B", " C", " D"}));
    EXPECT_EQ(item.answer, 1u);
  }
  expect_refused("question,A,B,C,D,answer\nq,1,2,3,4,E\n", {"line 2", "answer", "A to D"});
  expect_refused("question,A,B,C,D,answer\nq,1,2,3,4,4\n", {"line 2", "answer"});
  expect_refused("question,A,B,C,D,answer\nq,1,,3,4,A\n", {"line 2", "\"B\""});
  expect_refused("question,A,B,C,D,answer\n", {"no items"});
}

TEST(TaskFormats, Cmmlu) {
  const ChoiceItem item =
      first_item(",Question,A,B,C,D,Answer\n0,一加一等于几？,一,二,三,四,B\n", "cmmlu");
  EXPECT_EQ(item.contexts, Strings{"一加一等于几？\nA. 一\nB. 二\nC. 三\nD. 四\n答案："});
  EXPECT_EQ(item.continuations[3], " D");
  EXPECT_EQ(item.answer, 1u);
}

TEST(TaskFormats, MmluPro) {
  const ChoiceItem item = first_item(
      R"({"id":"x","benchmark":"mmlu_pro","prompt":"Which?","choices":["a","b","c"],"answer":"C",)"
      R"("meta":{"category":"law"}})",
      "mmlu_pro");
  EXPECT_EQ(item.contexts, Strings{"Which?\nA. a\nB. b\nC. c\nAnswer:"});
  EXPECT_EQ(item.answer, 2u);
  EXPECT_EQ(item.subject, "law");
  EXPECT_EQ(first_item(R"({"question":"Which?","options":["a","b"],"answer":"B","answer_index":1,)"
                       R"("category":"math"})",
                       "mmlu_pro")
                .subject,
            "math");
  expect_refused(R"({"prompt":"p","choices":["a","b"],"answer":"C","meta":{"category":"law"}})",
                 {"line 1", "answer"});
}

TEST(TaskFormats, HellaSwagIsCleanedLikeTheHarnessDoes) {
  const ChoiceItem item = first_item(
      R"({"ind":1,"activity_label":"Home","ctx_a":"[header] How to sweep [title] Take a broom.",)"
      R"("ctx_b":"the Man","ctx":"","endings":["[step] sweeps  it.","sings [substeps] loud."],)"
      R"("label":"1"})",
      "hellaswag");
  EXPECT_EQ(item.contexts, Strings{"Home: How to sweep. Take a broom. The man"});
  EXPECT_EQ(item.continuations, (Strings{"  sweeps it.", " sings loud."}));
  EXPECT_EQ(item.answer, 1u);
  expect_refused(R"({"activity_label":"a","ctx_a":"b","ctx_b":"","endings":["c","d"],"label":""})",
                 {"label"});
}

TEST(TaskFormats, RecordsOfQueryChoicesGold) {
  ChoiceItem item = first_item(
      R"({"query":"Question: Why?","choices":["Because.","No reason."],"gold":0})", "arc");
  EXPECT_EQ(item.contexts, Strings{"Question: Why?\nAnswer:"});
  EXPECT_EQ(item.continuations, (Strings{" Because.", " No reason."}));
  item = first_item(R"({"query":"Question: dresser\n","choices":["a","b"],"gold":1})", "piqa");
  EXPECT_EQ(item.contexts, Strings{"Question: dresser\nAnswer:"});
  item = first_item(R"({"query":"Passage: P.\nQuestion: is it?","choices":["no","yes"],"gold":1})",
                    "boolq");
  EXPECT_EQ(item.contexts, Strings{"Passage: P.\nQuestion: is it?\nAnswer:"});
  EXPECT_EQ(item.continuations, (Strings{" no", " yes"}));
  item = first_item(
      R"({"query":"Question: Where?\nChoices:\nA. x\nB. y\nAnswer:","choices":["A","B"],"gold":0})",
      "commonsense_qa");
  EXPECT_EQ(item.contexts, Strings{"Question: Where?\nChoices:\nA. x\nB. y\nAnswer:"});
  item = first_item(R"({"query":"He fell, because","choices":["of ice.","of joy."],"gold":0})",
                    "query");
  EXPECT_EQ(item.contexts, Strings{"He fell, because"});
  EXPECT_EQ(item.continuations[0], " of ice.");
}

TEST(TaskFormats, FilledContexts) {
  const ChoiceItem item =
      first_item(R"({"context_options":["Ann saw Bo because Ann","Ann saw Bo because Bo"],)"
                 R"("continuation":"waved.","gold":1})",
                 "filled_context");
  EXPECT_EQ(item.contexts.size(), 2u);
  EXPECT_EQ(item.continuations, Strings{" waved."});
  EXPECT_EQ(item.n_choices(), 2u);
  EXPECT_EQ(item.context(1), "Ann saw Bo because Bo");
  EXPECT_EQ(item.continuation(1), " waved.");
}

TEST(TaskFormats, ReleasedForms) {
  ChoiceItem item =
      first_item(R"({"id":"x","question":{"stem":"Why?","choices":[{"text":"a","label":"1"},)"
                 R"({"text":"b","label":"2"}]},"answerKey":"2"})",
                 "arc_original");
  EXPECT_EQ(item.contexts, Strings{"Question: Why?\nAnswer:"});
  EXPECT_EQ(item.answer, 1u);
  item = first_item(R"({"sentence":"Ann saw Bo because _ waved.","option1":"Ann","option2":"Bo",)"
                    R"("answer":"1"})",
                    "winogrande_original");
  EXPECT_EQ(item.contexts, (Strings{"Ann saw Bo because Ann", "Ann saw Bo because Bo"}));
  EXPECT_EQ(item.continuations, Strings{" waved."});
  item = first_item(R"({"question":"is it","title":"t","answer":true,"passage":"P."})",
                    "boolq_original");
  EXPECT_EQ(item.contexts, Strings{"Passage: P.\nQuestion: is it?\nAnswer:"});
  EXPECT_EQ(item.answer, 1u);
  expect_refused(R"({"question":{"stem":"s","choices":[{"text":"a","label":"A"},)"
                 R"({"text":"b","label":"B"}]},"answerKey":"C"})",
                 {"answerKey"});
  expect_refused(R"({"question":{"stem":"s","choices":[3,4]},"answerKey":"A"})", {"choices"});
  expect_refused(R"({"sentence":"no gap","option1":"a","option2":"b","answer":"1"})", {"sentence"});
}

TEST(TaskFormats, Aqua) {
  const ChoiceItem item = first_item(
      R"({"question":"2+2?","options":["A)3","B) 4"],"rationale":"r","correct":"B"})", "aqua");
  EXPECT_EQ(item.contexts, Strings{"2+2?\nA. 3\nB. 4\nAnswer:"});
  EXPECT_EQ(item.answer, 1u);
  expect_refused(R"({"question":"q","options":["A)3","C)4"],"correct":"B"})", {"options"});
}

TEST(TaskFormats, BadRecords) {
  const std::string good = R"({"query":"q","choices":["a","b"],"gold":0})";
  const auto second = [&](const std::string& line) { return good + "\n\n" + line + "\n"; };
  expect_refused(second(R"({"query":"q","choices":["a","b"]})"), {"line 3", "gold", "missing"});
  expect_refused(second(R"({"query":"q","choices":["a","b"],"gold":2})"), {"line 3", "0 to 1"});
  expect_refused(second(R"({"query":"q","choices":["a","b"],"gold":-1})"), {"-1"});
  expect_refused(second(R"({"query":"q","choices":["a","b"],"gold":1.5})"), {"1.5"});
  expect_refused(second(R"({"query":"q","choices":[],"gold":0})"), {"choices"});
  expect_refused(second(R"({"query":"q","choices":["a"],"gold":0})"), {"choices"});
  expect_refused(second(R"({"query":"q","choices":["a"," "],"gold":0})"), {"element 1"});
  expect_refused(second(R"({"query":"q","choices":["a",1],"gold":0})"), {"element 1"});
  expect_refused(second(R"({"query":7,"choices":["a","b"],"gold":0})"), {"query"});
  expect_refused(second(R"({"query":"","choices":["a","b"],"gold":0})"), {"query"});
  expect_refused(second("[1]"), {"line 3", "object"});
  expect_refused(second("{\"query\":"), {"line 3"});
  expect_refused(good + "\n{\"query\":\"\xFF\"}", {"UTF-8", "line 2"});
  expect_refused("", {"empty"});
  expect_refused("[]", {"no items"});
  expect_refused(R"({"foo":1})", {"foo", "arc"}, ErrorCode::kUnsupported);
  expect_refused(R"({"question":"q","answer":"#### 1"})", {"gsm8k"}, ErrorCode::kUnsupported);
  EXPECT_EQ(parse_choice_task("[" + good + ",\n" + good + "]", "array").items.size(), 2u);
}

class TaskFiles : public ::testing::Test {
 protected:
  std::filesystem::path write(const std::filesystem::path& name, std::string_view text) {
    const auto path = folder_.path() / name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path, std::ios::binary) << text;
    return path;
  }
  /// A table with `n` rows whose questions begin with `word`.
  static std::string table(const std::string& word, int n) {
    std::string text = "question,A,B,C,D,answer\n";
    for (int i = 0; i < n; ++i)
      text += word + std::to_string(i) + "?,a,b,c,d,D\n";
    return text;
  }
  test::TempDir folder_;
};

TEST_F(TaskFiles, ExamplesComeFromTheTableBesideIt) {
  const auto path = write("new_maths_test.csv", table("q", 3));
  const auto dev = write("new_maths_dev.csv", table("e", 5));
  ChoiceTask task = load_choice_task(path, {});
  EXPECT_EQ(task.shots, 5);
  ASSERT_EQ(task.items.size(), 3u);
  EXPECT_EQ(task.items[1].subject, "new_maths");
  const std::string& context = task.items[1].contexts[0];
  EXPECT_TRUE(context.starts_with(
      "The following are multiple choice questions (with answers) about new maths.\n\n"
      "e0?\nA. a\nB. b\nC. c\nD. d\nAnswer: D\n\ne1?\n"));
  EXPECT_TRUE(context.ends_with("Answer: D\n\nq1?\nA. a\nB. b\nC. c\nD. d\nAnswer:"));
  ASSERT_EQ(task.examples.size(), 1u);
  EXPECT_EQ(task.examples[0].path, dev);
  EXPECT_EQ(task.sha256, task.files[0].sha256);

  ChoiceTaskOptions options;
  options.shots = 0;
  task = load_choice_task(path, options);
  EXPECT_TRUE(
      task.items[0].contexts[0].ends_with("new maths.\n\nq0?\nA. a\nB. b\nC. c\nD. d\nAnswer:"));
  options.shots = 6;
  EXPECT_EQ(catch_error([&] { load_choice_task(path, options); }).code,
            ErrorCode::kInvalidArgument);
  std::filesystem::remove(dev);
  const auto missing = catch_error([&] { load_choice_task(path, {}); });
  EXPECT_NE(missing.message.find("new_maths_dev.csv"), std::string::npos) << missing.message;
  options.shots = 1;
  options.examples = write("other.csv", table("x", 1));
  EXPECT_NE(load_choice_task(path, options).items[0].contexts[0].find("x0?"), std::string::npos);
}

TEST_F(TaskFiles, FoldersOfSubjects) {
  write("b_test.csv", table("q", 3));
  write("b_dev.csv", table("e", 5));
  write("a_test.csv", table("q", 2));
  write("a_dev.csv", table("e", 5));
  write("a_val.csv", table("v", 5));
  write("notes.txt", "no task");
  ChoiceTask task = load_choice_task(folder_.path(), {});
  ASSERT_EQ(task.items.size(), 5u);
  EXPECT_EQ(task.items[0].subject, "a");
  EXPECT_EQ(task.items[4].subject, "b");
  EXPECT_EQ(task.files.size(), 2u);
  EXPECT_EQ(task.sha256.size(), 64u);
  ChoiceTaskOptions options;
  options.subject_limit = 1;
  EXPECT_EQ(load_choice_task(folder_.path(), options).items.size(), 2u);
  options.limit = 1;
  EXPECT_EQ(load_choice_task(folder_.path(), options).items.size(), 1u);
  // test/ and dev/ beside each other, the same names in both.
  write("cmmlu/test/agronomy.csv", ",Question,A,B,C,D,Answer\n0,q,a,b,c,d,A\n");
  write("cmmlu/dev/agronomy.csv", ",Question,A,B,C,D,Answer\n0,e,a,b,c,d,B\n");
  options = {};
  options.shots = 1;
  task = load_choice_task(folder_ / "cmmlu", options);
  EXPECT_EQ(task.items[0].contexts[0],
            "以下是关于农学的单项选择题，请直接给出正确答案的选项。\n\n"
            "e\nA. a\nB. b\nC. c\nD. d\n答案： B\n\nq\nA. a\nB. b\nC. c\nD. d\n答案：");
}

TEST_F(TaskFiles, BadFolders) {
  EXPECT_EQ(catch_error([&] { load_choice_task(folder_.path(), {}); }).code, ErrorCode::kFormat);
  EXPECT_EQ(catch_error([&] { load_choice_task(folder_ / "none.csv", {}); }).code, ErrorCode::kIo);
  write("a.jsonl", R"({"query":"q","choices":["a","b"],"gold":0})");
  write("b.jsonl", R"({"question":"q","options":["A)x","B)y"],"correct":"A"})");
  EXPECT_EQ(catch_error([&] { load_choice_task(folder_.path(), {}); }).code,
            ErrorCode::kInvalidArgument);
}

// --- word problems -------------------------------------------------------------------------------

TEST(WordProblems, NumbersHaveOneForm) {
  const std::vector<std::pair<std::string, std::string>> same = {
      {"18", "18"},       {" 1,450,000 ", "1450000"},
      {"$12.50", "12.5"}, {"007", "7"},
      {"3.000", "3"},     {"-0", "0"},
      {".5", "0.5"},      {"-$4", "-4"},
      {"+2", "2"},        {"0.0", "0"},
      {"-10", "-10"}};
  for (const auto& [text, expected] : same)
    EXPECT_EQ(canonical_number(text), expected) << text;
  for (const char* text : {"", "x", "1,23", "1 2", "12.", "--3", "1e5", "$"})
    EXPECT_EQ(canonical_number(text), std::nullopt) << text;
}

TEST(WordProblems, TheNumberAtTheEnd) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"She has 3 and 4, so 7.", "7"},
      {"#### 18\n\nThen 99", "18"},
      {"first #### 3, no: #### 5 apples", "5"},
      {"That is 12-3=9 eggs", "9"},
      {"a total of $1,234.50 in 2 years: $2,469.", "2469"},
      {"it costs -5", "-5"},
      {"1, 2", "2"},
      {"(10)-4", "4"},
      {"50% more", "50"}};
  for (const auto& [text, expected] : cases)
    EXPECT_EQ(final_number(text), expected) << text;
  EXPECT_EQ(final_number("no idea"), std::nullopt);
  EXPECT_EQ(final_number("3 apples. #### many"), std::nullopt);
}

TEST(WordProblems, RecordsPromptsAndJudgement) {
  const auto problems = parse_word_problems(
      "{\"question\":\"How many? \",\"answer\":\"He has 2*3=<<2*3=6>>6.\\n#### 1,006\"}\n"
      "{\"question\":\"And now?\",\"answer\":\"#### -2\"}\n",
      "g.jsonl");
  ASSERT_EQ(problems.size(), 2u);
  EXPECT_EQ(problems[0].answer, "1006");
  EXPECT_EQ(problems[0].solution, "He has 2*3=6.\n#### 1,006");
  EXPECT_EQ(
      problem_prompt(std::span(problems).first(1), problems[1]),
      "Question: How many?\nAnswer: He has 2*3=6.\n#### 1,006\n\nQuestion: And now?\nAnswer:");
  const auto chat = problem_chat(std::span(problems).first(1), problems[1]);
  ASSERT_EQ(chat.size(), 3u);
  EXPECT_EQ(chat[1].role, "assistant");
  EXPECT_EQ(chat[2].content, "And now?");
  EXPECT_TRUE(judge_solution(problems[0], "so 1006.00", StopReason::kEndOfText).right);
  EXPECT_FALSE(judge_solution(problems[0], "so 1007", StopReason::kEndOfText).right);
  EXPECT_FALSE(judge_solution(problems[0], "none", StopReason::kEndOfText).right);
  EXPECT_TRUE(judge_solution(problems[0], "none", StopReason::kLength).cut_off);
  for (const char* bad : {R"({"question":"q","answer":"six"})", R"({"question":"q"})",
                          R"({"question":"q","answer":"#### six"})", R"({"answer":"#### 6"})"})
    EXPECT_EQ(catch_error([&] { parse_word_problems(bad, "g.jsonl"); }).code, ErrorCode::kFormat);
}

}  // namespace
}  // namespace ts
