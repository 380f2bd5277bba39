#include <algorithm>

#include <fmt/format.h>

#include <tensorsharp/engine.hpp>

#include "cli/commands/commands.h"
#include "cli/eval_options.h"
#include "cli/interrupt.h"
#include "cli/text_output.h"
#include "eval/choice.h"

namespace ts::cli {
namespace {

using nlohmann::ordered_json;

class EvalChoiceCommand : public Command {
 public:
  EvalChoiceCommand()
      : Command("eval choice",
                "Answers multiple-choice questions: the choice whose text is the most likely after "
                "the question wins. The form of the file is recognised: MMLU and CMMLU tables (a "
                "folder is all of its subjects), MMLU-Pro, ARC, HellaSwag, PIQA, WinoGrande and "
                "Winograd schemas, BoolQ, OpenBookQA, CommonsenseQA, COPA, AQuA.",
                "tensorsharp eval choice model.gguf --task arc_easy.jsonl --limit 300\n"
                "tensorsharp eval choice model.gguf --task mmlu/ --by-subject --resume mmlu.json\n"
                "tensorsharp eval choice model.gguf --task mmlu/astronomy_test.csv --shots 0\n"
                "tensorsharp eval choice model.gguf --task hellaswag.jsonl --details items.jsonl") {
  }

  void add_options(OptionParser& options) override {
    options.group("Method");
    options.text("--task", task_path_, "FILE|DIR", "the questions");
    options.required();
    options.flag("--by-subject", by_subject_, "the figures of each subject too");
    options.integer("--limit", limit_, 1, INT64_MAX, "only the first N items");
    options.integer("--subject-limit", subject_limit_, 1, INT64_MAX,
                    "only the first N items of each file of a folder");
    options.integer("--shots", shots_, 0, 1000,
                    "solved examples in front of each question (default: 5 for MMLU and CMMLU, "
                    "else 0)");
    options.text("--examples", examples_, "FILE",
                 "where examples come from (default: NAME_dev.csv beside NAME_test.csv, or "
                 "../dev/NAME.csv)");
    options.text("--details", details_, "FILE", "write what each item got, one JSON object a line");
    options.flag("--force", force_, "let --details replace an existing file");
    eval_.add(options, kConversationContext);
  }

  void check_options() override {
    eval_.check();
    if (shots_ && *shots_ == 0 && !examples_.empty())
      throw InvalidArgument("--examples gives examples, --shots 0 wants none");
  }

  int run(Console& console) override {
    ChoiceTaskOptions options;
    if (shots_) options.shots = static_cast<int>(*shots_);
    options.examples = examples_;
    if (limit_) options.limit = static_cast<uint64_t>(*limit_);
    if (subject_limit_) options.subject_limit = static_cast<uint64_t>(*subject_limit_);
    const ChoiceTask task = load_choice_task(task_path_, options);
    eval_.check_sha(task_path_, task.sha256);
    std::optional<AtomicFile> details;
    if (!details_.empty()) details.emplace(details_, force_);

    const LoadOptions load = eval_.model.load_options();
    const auto engine = eval_.model.load(console, load);
    console.note(describe_model(engine->info()));
    std::string examples_sha;
    for (const TaskFile& file : task.examples)
      examples_sha += file.sha256;
    ResumeFile file = eval_.resume_file(console, *engine, load, "choice", task.sha256,
                                        {{"format", task.format->name},
                                         {"shots", task.shots},
                                         {"examples_sha256", examples_sha},
                                         {"subject_limit", subject_limit_.value_or(-1)}});
    std::vector<ItemScore> scores;
    if (const auto earlier = file.load()) {
      scores = scores_of(file, *earlier, task);
      console.note_format("going on after {} items", scores.size());
    }
    ChoiceScorer scorer(engine, &interrupt_flag());
    const bool complete = run_resumable(
        file, [&] { return state_of(scores); },
        [&] {
          score_items(scorer, task.items, scores, console.progress(), [&] {
            if (console.verbose()) note_item(console, task, scores);
            if (file.due()) file.save(state_of(scores));
          });
        });
    if (details) {
      write_details(*details, task, scores);
      details->commit();
    }
    report(console, *engine, task, scores, complete);
    if (complete) return kSuccess;
    note_interrupted(console, file, scores.size(), task.items.size(), "items");
    return kInterrupted;
  }

 private:
  static ordered_json state_of(const std::vector<ItemScore>& scores) {
    ordered_json items = ordered_json::array();
    for (const ItemScore& score : scores)
      items.push_back({{"bits", bits_of(score.log_likelihoods)}, {"cut", score.truncated}});
    return {{"items", items}};
  }

  static std::vector<ItemScore> scores_of(const ResumeFile& file, const nlohmann::json& state,
                                          const ChoiceTask& task) {
    if (!state.contains("items") || !state["items"].is_array()) file.fail("no \"items\"");
    const nlohmann::json& items = state["items"];
    if (items.size() > task.items.size())
      throw InvalidArgument(
          fmt::format("--resume {}: it already covers {} items, more than the {} asked for",
                      file.name(), items.size(), task.items.size()));
    std::vector<ItemScore> scores;
    for (const auto& item : items) {
      if (!item.is_object() || !item.contains("cut") || !item["cut"].is_boolean())
        file.fail(fmt::format("item {} is none", scores.size()));
      ItemScore score{file.reals_of(item, "bits"), item["cut"].get<bool>()};
      if (score.log_likelihoods.size() != task.items[scores.size()].n_choices())
        file.fail(
            fmt::format("item {} has {} choices", scores.size(), score.log_likelihoods.size()));
      scores.push_back(std::move(score));
    }
    return scores;
  }

  static void note_item(Console& console, const ChoiceTask& task,
                        const std::vector<ItemScore>& scores) {
    const ChoiceResult r = choice_result(task.items, scores);
    console.note_format("[{}] accuracy {:.4f}, by bytes {:.4f}", r.n_items, r.accuracy().value,
                        r.accuracy_norm().value);
  }

  static void write_details(AtomicFile& file, const ChoiceTask& task,
                            const std::vector<ItemScore>& scores) {
    for (size_t i = 0; i < scores.size(); ++i) {
      const ChoiceItem& item = task.items[i];
      const auto norm = per_byte(item, scores[i].log_likelihoods);
      const ordered_json line = {
          {"item", i},
          {"subject", item.subject},
          {"answer", item.answer},
          {"chosen", best_choice(scores[i].log_likelihoods)},
          {"chosen_norm", best_choice(norm)},
          {"log_likelihoods", scores[i].log_likelihoods},
          {"log_likelihoods_per_byte", norm},
          {"truncated", scores[i].truncated},
      };
      append_json_line(file, line);
    }
  }

  static ordered_json figures(const ChoiceResult& r) {
    const Estimate accuracy = r.accuracy(), norm = r.accuracy_norm();
    const Interval interval = proportion_interval_95(r.n_right, r.n_items),
                   interval_norm = proportion_interval_95(r.n_right_norm, r.n_items);
    const bool any = r.n_items > 0, several = r.n_items > 1;
    return {
        {"accuracy", when_known(any, accuracy.value)},
        {"accuracy_norm", when_known(any, norm.value)},
        {"std_error", when_known(several, accuracy.std_error)},
        {"std_error_norm", when_known(several, norm.std_error)},
        {"confidence_interval_95", when_known(any, {interval.low, interval.high})},
        {"confidence_interval_95_norm", when_known(any, {interval_norm.low, interval_norm.high})},
        {"chance", when_known(any, r.chance)},
        {"n_items", r.n_items}};
  }

  static ordered_json files_json(const std::vector<TaskFile>& files) {
    ordered_json out = ordered_json::array();
    for (const TaskFile& file : files)
      out.push_back({{"path", file.path.string()}, {"sha256", file.sha256}});
    return out;
  }

  void report(Console& console, const Engine& engine, const ChoiceTask& task,
              const std::vector<ItemScore>& scores, bool complete) const {
    const ChoiceResult all = choice_result(task.items, scores);
    const auto subjects = choice_results_by_subject(task.items, scores);
    double mean = 0, mean_norm = 0;
    for (const ChoiceResult& r : subjects) {
      mean += r.accuracy().value / static_cast<double>(subjects.size());
      mean_norm += r.accuracy_norm().value / static_cast<double>(subjects.size());
    }
    const auto n_truncated =
        std::count_if(scores.begin(), scores.end(), [](const ItemScore& s) { return s.truncated; });
    ordered_json out = figures(all);
    out.update({{"task", task.format->name},
                {"shots", task.shots},
                {"n_subjects", subjects.size()},
                {"accuracy_mean_of_subjects", when_known(!subjects.empty(), mean)},
                {"accuracy_norm_mean_of_subjects", when_known(!subjects.empty(), mean_norm)},
                {"truncated_items", n_truncated},
                {"data", task_path_},
                {"data_sha256", task.sha256},
                {"data_files", files_json(task.files)},
                {"example_files", files_json(task.examples)},
                {"context", engine.info().context}});
    if (by_subject_) {
      ordered_json results = ordered_json::array();
      for (const ChoiceResult& r : subjects) {
        ordered_json row = {{"subject", r.subject}};
        row.update(figures(r));
        results.push_back(row);
      }
      out["results"] = results;
    }
    out.update(eval_.provenance(engine));
    out["complete"] = complete;
    if (n_truncated > 0)
      console.warn(
          fmt::format("{} items were longer than the context of {} tokens and lost their "
                      "beginning; use a larger --ctx",
                      n_truncated, engine.info().context));
    if (console.json()) {
      console.json_line(out);
      return;
    }
    if (scores.empty()) return;
    if (by_subject_) {
      std::vector<std::vector<std::string>> rows = {
          {"subject", "items", "accuracy", "", "by bytes", ""}};
      for (const ChoiceResult& r : subjects)
        rows.push_back({printable(r.subject), grouped(r.n_items), percent(r.accuracy().value),
                        "+/- " + percent(r.accuracy().std_error), percent(r.accuracy_norm().value),
                        "+/- " + percent(r.accuracy_norm().std_error)});
      console.out(table(rows, {1, 2, 4}) + "\n");
    }
    std::vector<std::vector<std::string>> rows = {
        {"accuracy", describe(all.accuracy(), proportion_interval_95(all.n_right, all.n_items))},
        {"accuracy by bytes",
         describe(all.accuracy_norm(), proportion_interval_95(all.n_right_norm, all.n_items))},
        {"guessing", percent(all.chance)},
        {"items", fmt::format("{} of {}", grouped(all.n_items), grouped(task.items.size()))},
        {"task", fmt::format("{}, {} example{}", task.format->name, task.shots,
                             task.shots == 1 ? "" : "s")},
        {"data", printable(task_path_)},
        {"data sha256", task.sha256},
        {"kernels", kernels_text(out)}};
    if (subjects.size() > 1)
      rows.insert(rows.begin() + 2,
                  {"mean of subjects", fmt::format("{}, by bytes {}, of {} subjects", percent(mean),
                                                   percent(mean_norm), subjects.size())});
    console.out(table(rows, {}));
  }

  static std::string percent(double value) { return fmt::format("{:.2f} %", 100 * value); }
  static std::string describe(const Estimate& estimate, const Interval& interval) {
    return fmt::format("{} +/- {} (95 %: {} to {})", percent(estimate.value),
                       percent(estimate.std_error), percent(interval.low), percent(interval.high));
  }

  EvalOptions eval_;
  std::string task_path_, examples_, details_;
  std::optional<int64_t> limit_, subject_limit_, shots_;
  bool by_subject_ = false, force_ = false;
};

}  // namespace

std::unique_ptr<Command> make_eval_choice_command() {
  return std::make_unique<EvalChoiceCommand>();
}

}  // namespace ts::cli
