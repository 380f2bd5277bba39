#include <algorithm>

#include <fmt/format.h>

#include <tensorsharp/engine.hpp>

#include "base/sha256.h"
#include "cli/commands/commands.h"
#include "cli/eval_options.h"
#include "cli/input_text.h"
#include "cli/interrupt.h"
#include "cli/text_output.h"
#include "eval/gsm8k.h"
#include "eval/statistics.h"

namespace ts::cli {
namespace {

using nlohmann::ordered_json;

/// What became of one problem.
struct SolvedProblem {
  ProblemResult result;
  std::string solution;
};

class EvalGsm8kCommand : public Command {
 public:
  EvalGsm8kCommand()
      : Command("eval gsm8k",
                "Lets the model write out solutions of school problems (greedily) and compares the "
                "number at the end, after \"####\" or the last in the text, with the right one.",
                "tensorsharp eval gsm8k model.gguf --task gsm8k_test.jsonl --limit 100 --shots 5 "
                "--examples gsm8k_train.jsonl\n"
                "tensorsharp eval gsm8k model.gguf --task gsm8k_test.jsonl --chat --resume "
                "run.json") {}

  void add_options(OptionParser& options) override {
    options.group("Method");
    options.text("--task", task_path_, "FILE", "the problems: JSON lines of question and answer");
    options.required();
    options.integer("--limit", limit_, 1, INT64_MAX, "only the first N problems");
    options.integer("--shots", shots_, 0, 100, "solved examples in front of each (default 0)");
    options.text("--examples", examples_path_, "FILE",
                 "where examples come from (default: the last ones of --task, which are then not "
                 "asked)");
    options.flag("--chat", chat_, "ask through the model's chat template");
    options.integer("--max-tokens", max_tokens_, 1, INT32_MAX,
                    "most tokens of a solution (default 400)");
    options.text("--details", details_, "FILE",
                 "write each solution and what became of it, one JSON object a line");
    options.flag("--force", force_, "let --details replace an existing file");
    eval_.add(options, kConversationContext);
  }

  void check_options() override {
    eval_.check();
    if (!examples_path_.empty() && shots_ == 0)
      throw InvalidArgument("--examples needs --shots, the number of examples to take from it");
  }

  int run(Console& console) override {
    const EvalData data = eval_.read_data(task_path_);
    load_problems(data);
    std::optional<AtomicFile> details;
    if (!details_.empty()) details.emplace(details_, force_);

    const LoadOptions load = eval_.model.load_options();
    const auto engine = eval_.model.load(console, load);
    console.note(describe_model(engine->info()));
    if (chat_ && !engine->info().has_chat_template)
      throw InvalidArgument("--chat: the model has no chat template");
    ResumeFile file = eval_.resume_file(console, *engine, load, "gsm8k", data.sha256,
                                        {{"shots", shots_},
                                         {"examples_sha256", examples_sha_},
                                         {"chat", chat_},
                                         {"max_tokens", max_tokens_}});
    std::vector<SolvedProblem> solved;
    if (const auto earlier = file.load()) {
      solved = solved_of(file, *earlier);
      console.note_format("going on after {} problems", solved.size());
    }
    const bool complete = run_resumable(
        file, [&] { return state_of(solved); }, [&] { solve_all(console, *engine, file, solved); });
    if (details) {
      write_details(*details, solved);
      details->commit();
    }
    report(console, *engine, data, solved, complete);
    if (complete) return kSuccess;
    note_interrupted(console, file, solved.size(), problems_.size(), "problems");
    return kInterrupted;
  }

 private:
  void load_problems(const EvalData& data) {
    problems_ = parse_word_problems(data.text, data.path);
    const auto shots = static_cast<size_t>(shots_);
    if (shots > 0 && !examples_path_.empty()) {
      const std::string text = read_text_file(examples_path_);
      examples_sha_ = sha256_hex(std::as_bytes(std::span(text.data(), text.size())));
      examples_ = parse_word_problems(text, examples_path_);
      if (examples_.size() < shots)
        throw InvalidArgument(fmt::format("{}: {} problems, fewer than the {} of --shots",
                                          examples_path_, examples_.size(), shots));
      examples_.resize(shots);
    } else if (shots > 0) {
      if (problems_.size() <= shots)
        throw InvalidArgument(
            fmt::format("{}: {} problems leave none to ask after {} examples\n  Name another file "
                        "with --examples.",
                        data.path, problems_.size(), shots));
      const auto first = problems_.end() - static_cast<std::ptrdiff_t>(shots);
      examples_.assign(first, problems_.end());
      problems_.erase(first, problems_.end());
    }
    if (limit_ && static_cast<uint64_t>(*limit_) < problems_.size())
      problems_.resize(static_cast<size_t>(*limit_));
  }

  void solve_all(Console& console, const Engine& engine, ResumeFile& file,
                 std::vector<SolvedProblem>& solved) const {
    const auto session = engine.new_session();
    GenerateOptions options;
    options.max_tokens = max_tokens_;
    options.sampling.temperature = 0;
    options.sampling.seed = 0;
    if (!chat_) options.stop = problem_stops();
    options.cancel = &interrupt_flag();
    const Progress progress = console.progress();
    while (solved.size() < problems_.size()) {
      progress("solving", solved.size(), problems_.size());
      const WordProblem& problem = problems_[solved.size()];
      const auto prompt = chat_ ? engine.tokenize_chat(problem_chat(examples_, problem))
                                : engine.tokenize(problem_prompt(examples_, problem));
      const GenerateResult answer = session->generate(prompt, options);
      if (answer.stop_reason == StopReason::kCancelled) throw Cancelled("interrupted");
      solved.push_back({judge_solution(problem, answer.text, answer.stop_reason), answer.text});
      if (console.verbose())
        console.note_format("[{}] {}, expected {}", solved.size(),
                            solved.back().result.number.value_or("no number"), problem.answer);
      if (file.due()) file.save(state_of(solved));
    }
    progress("solving", solved.size(), problems_.size());
  }

  static ordered_json state_of(const std::vector<SolvedProblem>& solved) {
    ordered_json items = ordered_json::array();
    for (const SolvedProblem& s : solved)
      items.push_back({{"solution", s.solution}, {"cut", s.result.cut_off}});
    return {{"items", items}};
  }

  std::vector<SolvedProblem> solved_of(const ResumeFile& file, const nlohmann::json& state) const {
    if (!state.contains("items") || !state["items"].is_array()) file.fail("no \"items\"");
    const nlohmann::json& items = state["items"];
    if (items.size() > problems_.size())
      throw InvalidArgument(
          fmt::format("--resume {}: it already covers {} problems, more than the {} asked for",
                      file.name(), items.size(), problems_.size()));
    std::vector<SolvedProblem> solved;
    for (const auto& item : items) {
      if (!item.is_object() || !item.contains("solution") || !item["solution"].is_string() ||
          !item.contains("cut") || !item["cut"].is_boolean())
        file.fail(fmt::format("item {} is none", solved.size()));
      const std::string text = item["solution"].get<std::string>();
      solved.push_back(
          {judge_solution(problems_[solved.size()], text,
                          item["cut"].get<bool>() ? StopReason::kLength : StopReason::kEndOfText),
           text});
    }
    return solved;
  }

  void write_details(AtomicFile& file, const std::vector<SolvedProblem>& solved) const {
    for (size_t i = 0; i < solved.size(); ++i) {
      const ProblemResult& r = solved[i].result;
      const ordered_json line = {{"item", i},
                                 {"question", problems_[i].question},
                                 {"expected", problems_[i].answer},
                                 {"number", r.number ? ordered_json(*r.number) : ordered_json()},
                                 {"right", r.right},
                                 {"cut_off", r.cut_off},
                                 {"solution", solved[i].solution}};
      append_json_line(file, line);
    }
  }

  void report(Console& console, const Engine& engine, const EvalData& data,
              const std::vector<SolvedProblem>& solved, bool complete) const {
    const auto count = [&](auto&& test) {
      return static_cast<uint64_t>(std::count_if(solved.begin(), solved.end(), test));
    };
    const uint64_t right = count([](const SolvedProblem& s) { return s.result.right; });
    const uint64_t cut = count([](const SolvedProblem& s) { return s.result.cut_off; });
    const uint64_t numberless = count([](const SolvedProblem& s) { return !s.result.number; });
    const Estimate accuracy = proportion_of(right, solved.size());
    const Interval interval = proportion_interval_95(right, solved.size());
    ordered_json out = {
        {"accuracy", when_known(!solved.empty(), accuracy.value)},
        {"std_error", when_known(solved.size() > 1, accuracy.std_error)},
        {"confidence_interval_95", when_known(!solved.empty(), {interval.low, interval.high})},
        {"n_items", solved.size()},
        {"n_right", right},
        {"n_without_number", numberless},
        {"n_cut_off", cut},
        {"shots", shots_},
        {"chat", chat_},
        {"max_tokens", max_tokens_},
        {"data", data.path},
        {"data_sha256", data.sha256},
        {"examples", examples_path_.empty() ? ordered_json() : ordered_json(examples_path_)},
        {"examples_sha256", examples_sha_.empty() ? ordered_json() : ordered_json(examples_sha_)},
        {"context", engine.info().context},
    };
    out.update(eval_.provenance(engine));
    out["complete"] = complete;
    if (console.json()) {
      console.json_line(out);
      return;
    }
    if (solved.empty()) return;
    console.out(table({{"accuracy", fmt::format("{:.2f} % +/- {:.2f} % (95 %: {:.2f} to {:.2f} %)",
                                                100 * accuracy.value, 100 * accuracy.std_error,
                                                100 * interval.low, 100 * interval.high)},
                       {"right", fmt::format("{} of {}", grouped(right), grouped(solved.size()))},
                       {"without a number", grouped(numberless)},
                       {"cut off", fmt::format("{} at {} tokens or the end of the context",
                                               grouped(cut), max_tokens_)},
                       {"method", fmt::format("{} example{}, {}", shots_, shots_ == 1 ? "" : "s",
                                              chat_ ? "chat template" : "plain text")},
                       {"data", printable(data.path)},
                       {"data sha256", data.sha256},
                       {"kernels", kernels_text(out)}},
                      {}));
  }

  EvalOptions eval_;
  std::string task_path_, examples_path_, details_, examples_sha_;
  std::optional<int64_t> limit_;
  int64_t shots_ = 0, max_tokens_ = 400;
  bool chat_ = false, force_ = false;
  std::vector<WordProblem> problems_, examples_;
};

}  // namespace

std::unique_ptr<Command> make_eval_gsm8k_command() {
  return std::make_unique<EvalGsm8kCommand>();
}

}  // namespace ts::cli
