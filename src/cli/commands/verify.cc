#include "eval/verify.h"

#include <algorithm>

#include <fmt/format.h>

#include <tensorsharp/error.hpp>

#include "base/cpu_topology.h"
#include "cli/commands/commands.h"
#include "cli/model_options.h"
#include "cli/text_output.h"
#include "quantize/compare_weights.h"

namespace ts::cli {
namespace {

using nlohmann::ordered_json;

ordered_json findings_json(const std::vector<VerifyFinding>& findings) {
  ordered_json list = ordered_json::array();
  for (const VerifyFinding& f : findings) {
    ordered_json row = {{"tensor", nullptr}, {"offset", nullptr}, {"what", f.what}};
    if (!f.tensor.empty()) row["tensor"] = f.tensor;
    if (f.offset) row["offset"] = *f.offset;
    list.push_back(std::move(row));
  }
  return list;
}

std::string findings_text(const std::vector<VerifyFinding>& findings, std::string_view kind) {
  std::string out;
  for (const VerifyFinding& f : findings) {
    out += kind;
    if (!f.tensor.empty()) out += printable(f.tensor) + ": ";
    out += printable(f.what, true);
    if (f.offset) out += fmt::format(" (byte {})", grouped(*f.offset));
    out += '\n';
  }
  return out;
}

class VerifyCommand : public Command {
 public:
  VerifyCommand()
      : Command("verify",
                "Checks a model file. Level quick: structure, bounds, tokenizer, the "
                "architecture's tensors and the values of its small ones. Level full: also every "
                "block (finite scales, legal codes, "
                "same bytes after decoding and encoding) and a forward pass of 8 tokens (of large "
                "models 2) against the reference kernels. Exit status 1 when something is wrong.",
                "tensorsharp verify model.gguf\n"
                "tensorsharp verify ternary.gguf --against original.gguf\n"
                "tensorsharp verify model.gguf --level full --threads 4\n"
                "tensorsharp verify model.gguf --json | jq '.problems[].what'") {}

  void add_options(OptionParser& options) override {
    add_model_argument(options, path_);
    options.choice("--level", level_, {"quick", "full"}, "how much to check (default quick)");
    options.text("--against", against_, "REF",
                 "compare the weights with those of another model file or checkpoint, tensor by "
                 "tensor, instead");
    add_thread_option(options, threads_);
    add_isa_option(options, isa_);
  }

  void check_options() override {
    if (!against_.empty() && (level_ != "quick" || !isa_.empty()))
      throw InvalidArgument("--against compares weights; --level and --isa do not apply");
  }

  int run(Console& console) override {
    if (!against_.empty()) return run_against(console);
    VerifyOptions options;
    options.level = level_ == "full" ? VerifyLevel::kFull : VerifyLevel::kQuick;
    options.n_threads = threads_ > 0 ? threads_ : default_threads().n_threads;
    options.isa = isa_;
    const VerifyReport report = verify_model(path_, options, console.progress());
    if (console.json()) {
      ordered_json result = {{"ok", report.ok()},
                             {"level", level_},
                             {"architecture", report.architecture},
                             {"problems", findings_json(report.problems)},
                             {"notes", findings_json(report.notes)},
                             {"tensors", report.n_tensors},
                             {"blocks", report.n_blocks},
                             {"forward_difference", nullptr}};
      if (report.forward_checked) result["forward_difference"] = report.forward_difference;
      console.json_line(result);
    } else {
      console.out(findings_text(report.problems, "problem: ") +
                  findings_text(report.notes, "note: ") + summary(report));
    }
    return report.ok() ? kSuccess : kAnswerIsNo;
  }

 private:
  int run_against(Console& console) const {
    ThreadPool pool(threads_ > 0 ? threads_ : default_threads().n_threads);
    const std::vector<WeightError> errors =
        compare_weights(path_, against_, pool, console.progress());
    console.clear_progress();
    if (console.json()) {
      ordered_json tensors = ordered_json::array();
      for (const WeightError& e : errors)
        tensors.push_back({{"name", e.name},
                           {"relative_error", e.relative_error},
                           {"sqnr_db", e.sqnr_db},
                           {"min_row_cosine", e.min_row_cosine}});
      console.json_line({{"ok", true},
                         {"against", against_},
                         {"tensors", std::move(tensors)},
                         {"problems", ordered_json::array()},
                         {"notes", ordered_json::array()}});
      return kSuccess;
    }
    std::vector<std::vector<std::string>> rows = {
        {"tensor", "relative error", "SQNR, dB", "least cosine of a row"}};
    for (const WeightError& e : errors)
      rows.push_back({printable(e.name), fmt::format("{:.6f}", e.relative_error),
                      fmt::format("{:.3f}", e.sqnr_db), fmt::format("{:.6f}", e.min_row_cosine)});
    console.out(table(rows, {1, 2, 3}) + comparison_summary(errors));
    return kSuccess;
  }

  static std::string comparison_summary(const std::vector<WeightError>& errors) {
    if (errors.empty()) return "nothing to compare\n";
    const auto worst = std::min_element(
        errors.begin(), errors.end(),
        [](const WeightError& a, const WeightError& b) { return a.sqnr_db < b.sqnr_db; });
    const auto exact = std::count_if(errors.begin(), errors.end(),
                                     [](const WeightError& e) { return e.relative_error == 0; });
    return fmt::format("{} tensors compared, {} of them equal; worst: {} with {:.2f} dB\n",
                       errors.size(), exact, printable(worst->name), worst->sqnr_db);
  }

  std::string summary(const VerifyReport& report) const {
    if (!report.ok())
      return fmt::format("FAILED: {} problem{} in {}\n", report.problems.size(),
                         report.problems.size() == 1 ? "" : "s", printable(path_));
    std::string out = fmt::format("ok: {} tensors", grouped(report.n_tensors));
    if (report.n_blocks > 0) out += fmt::format(", {} blocks", grouped(report.n_blocks));
    if (report.forward_checked)
      out += fmt::format(", forward pass differs from the reference by {:.2g} standard deviations",
                         report.forward_difference);
    return out + "\n";
  }

  std::string path_, level_ = "quick", isa_, against_;
  int threads_ = 0;
};

}  // namespace

std::unique_ptr<Command> make_verify_command() {
  return std::make_unique<VerifyCommand>();
}

}  // namespace ts::cli
