#include "quantize/quantize.h"

#include <algorithm>
#include <filesystem>
#include <random>
#include <string_view>
#include <system_error>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <tensorsharp/error.hpp>

#include "cli/commands/commands.h"
#include "cli/generation_statistics.h"
#include "cli/model_options.h"
#include "cli/text_output.h"
#include "codec/codec.h"
#include "quantize/report.h"

namespace ts::cli {
namespace {

class QuantizeCommand : public Command {
 public:
  QuantizeCommand()
      : Command("quantize",
                "Turns a Hugging Face checkpoint or a GGUF file into a ternary model: rotates the "
                "weights, fits -1, 0 and +1 with a scale per group to them, and writes a file that "
                "`tensorsharp run` loads. With --calib the weights are fitted to the inputs they "
                "really see, which is far better. The result is measured against the source; one "
                "that is of no use is not kept (exit status 1).",
                "tensorsharp quantize ./Qwen3-0.6B qwen3-ternary.gguf --calib web.txt:6 --calib "
                "code.txt:1\n"
                "tensorsharp quantize model-q8_0.gguf ternary.gguf --planes 2 --calib web.txt "
                "--holdout wiki.txt --resume\n"
                "tensorsharp quantize model.gguf --dry-run --scheme pq2_0 --policy ffn-only") {}

  void add_options(OptionParser& options) override {
    options.text("IN", input_, "", "a checkpoint directory or a .gguf file");
    options.required();
    options.text("OUT", output_, "", "the .gguf file to write; may be left out with --dry-run");
    options.group("Types");
    options.choice("--scheme", options_.scheme,
                   {"ptq1_0", "pq2_0", "q2_0", "tq1_0", "tq2_0", "q8_0", "f16"},
                   "type of the layers' matrices (default ptq1_0)");
    options.integer("--group", group_, 32, 256,
                    "weights that share a scale: 64 means q2_0, 128 ptq1_0 or pq2_0, 256 tq1_0 or "
                    "tq2_0");
    options.text(
        "--policy", options_.policy, "NAME|FILE",
        "types by tensor: all, ffn-only, keep-down, attention-f16, or a JSON file of rules");
    options.flag("--no-fallback", options_.no_fallback,
                 "refuse, instead of choosing another type, when a width does not fit");
    options.group("Fit");
    options.text(
        "--method", method_, "NAME",
        "absmean, fixed, quantile, topk, l1, mse, gptq or tuned (default gptq with --calib, "
        "mse without)");
    options.real("--threshold", threshold_, 0, 1e6,
                 "of fixed (times the standard deviation, default 0.5), quantile (default 0.38), "
                 "topk (share kept nonzero, default 0.54) and l1 (weight of the penalty, default "
                 "0.001)");
    options.text("--search", search_, "LIST",
                 "separated by commas: rotation (of six seeds of signs, the best for each width), "
                 "threshold (of topk: the best share from 1 % to 75 % for each output)");
    options.integer("--planes", options_.n_planes, 1, kMaxPlanes,
                    "ternary planes that add up to each matrix; all but the first go to a file "
                    "STEM.residuals.gguf beside OUT");
    options.text("--plane-fit", plane_fit_, "progressive|greedy|free|tied",
                 "how planes share the work (default progressive: plane 0 is usable alone)");
    options.real(
        "--target-bpw", target_bits_, 0.1, 64,
        "bits per weight over all tensors: instead of --planes everywhere, planes go to the "
        "matrices where they matter most; needs --calib");
    options.text("--sparsity", sparsity_, "none|2:4|3:4|1-2:4",
                 "nonzero codes among four consecutive inputs");
    options.integer("--tune-steps", tune_steps_, 1, 100000,
                    "of tuned: steps of 4 texts each (default 40)");
    options.real("--tune-rate", tune_rate_, 1e-6, 1,
                 "of tuned: largest relative change of a scale in one step (default 0.02)");
    options.group("Calibration");
    options.texts("--calib", calibration_, "FILE[:WEIGHT]",
                  "text to fit the weights with: plain text, .jsonl with \"text\" or \"messages\", "
                  "or .u32 token ids; may be given several times");
    options.integer("--calib-tokens", options_.calibration_tokens, kSequenceTokens,
                    int64_t{1} << 32, "tokens taken from these files (default 65536)");
    options.real("--damping", damping_, 1e-6, 10,
                 "part of the mean added to the diagonal of the statistics (default 0.1)");
    options.real("--correction", correction_, 0, 1,
                 "how far to correct weights for the errors of the layers before (default 0.5)");
    options.texts("--holdout", holdout_, "FILE",
                  "text to measure the result on; without, the ends of the --calib files; may be "
                  "given several times");
    options.flag("--accept-quality", options_.accept_quality,
                 "keep the file even if its perplexity is more than 20 times the source's");
    options.group("Rotation");
    options.text("--rotate", options_.rotate, "auto|none|absorbed|N",
                 "block of the Hadamard rotation: auto is the largest power of two up to 1024 that "
                 "divides every rotated width; absorbed makes the rotation part of the weights, so "
                 "that any engine runs the file");
    options.integer("--seed", seed_, 0, INT64_MAX, "of the rotation's signs (default random)");
    options.group("Run");
    options.flag("--dry-run", options_.dry_run, "show the plan and the exact sizes, write nothing");
    options.flag("--resume", options_.resume,
                 "keep finished layers in OUT.partial, and go on from those of an interrupted run "
                 "of the same command; needs --seed");
    options.text("--report", report_, "FILE.json|FILE.html", "write what was done and measured");
    options.flag("--force", options_.overwrite, "replace an existing file");
    options.text("--force-pre", options_.force_pre, "NAME",
                 "pre-tokenizer name to store instead of the detected one");
    add_thread_option(options, options_.n_threads);
    add_isa_option(options, options_.isa);
  }

  void check_options() override {
    if (output_.empty() && !options_.dry_run)
      throw InvalidArgument("name the file to write, or give --dry-run");
    if (group_) choose_group(*group_);
    if (method_ == "tuned") {
      options_.method = TernaryMethod::kGptq;
      options_.tune = true;
    } else if (!method_.empty()) {
      options_.method = parse_ternary_method(method_);
      if (!options_.method)
        throw InvalidArgument(fmt::format(
            "--method {}: expected absmean, fixed, quantile, topk, l1, mse, gptq or tuned",
            method_));
    }
    if ((tune_steps_ || tune_rate_) && !options_.tune)
      throw InvalidArgument("--tune-steps and --tune-rate are about --method tuned");
    if (tune_steps_) options_.tune_steps = static_cast<int>(*tune_steps_);
    if (tune_rate_) options_.tune_rate = static_cast<double>(*tune_rate_);
    if (!sparsity_.empty()) {
      const auto sparsity = parse_sparsity(sparsity_);
      if (!sparsity)
        throw InvalidArgument(
            fmt::format("--sparsity {}: expected none, 2:4, 3:4 or 1-2:4", sparsity_));
      options_.sparsity = *sparsity;
    }
    read_plane_fit();
    read_search();
    if (threshold_) options_.threshold = *threshold_;
    if (target_bits_) {
      if (options_.n_planes > 1) throw InvalidArgument("give --planes or --target-bpw, not both");
      options_.target_bits = static_cast<double>(*target_bits_);
    }
    if (damping_) options_.damping = static_cast<double>(*damping_);
    if (correction_) options_.correction = static_cast<double>(*correction_);
    for (const std::string& text : calibration_)
      options_.calibration.push_back(parse_calibration_file(text));
    for (const std::string& text : holdout_)
      options_.holdout.emplace_back(text);
    if ((damping_ || correction_) && calibration_.empty())
      throw InvalidArgument(
          "--damping and --correction are about the statistics of texts; give --calib FILE");
    if (options_.resume && !seed_)
      throw InvalidArgument("--resume goes on with the same signs; give --seed N");
    if (options_.resume && calibration_.empty())
      throw InvalidArgument("--resume keeps layers fitted to texts; give --calib FILE");
    if (!report_.empty() && !report_.ends_with(".json") && !report_.ends_with(".html"))
      throw InvalidArgument(
          fmt::format("--report {}: expected a name ending in .json or .html", report_));
    const bool ternary = options_.scheme != "q8_0" && options_.scheme != "f16";
    const bool fit_asked = !method_.empty() || threshold_ || options_.n_planes > 1 ||
                           target_bits_ || !plane_fit_.empty() || !sparsity_.empty() ||
                           !search_.empty();
    if (!ternary && fit_asked && options_.policy.empty())
      throw InvalidArgument(fmt::format(
          "--scheme {} has no ternary codes: --method, --threshold, --search, --planes, "
          "--plane-fit and --sparsity do not apply to it",
          options_.scheme));
    options_.seed = seed_ ? static_cast<uint64_t>(*seed_) : std::random_device{}();
  }

  int run(Console& console) override {
    if (!report_.empty()) check_report_path();
    QuantizeReport report = quantize_model(input_, output_, options_, console.progress());
    report.peak_rss_bytes = peak_rss_bytes();
    console.clear_progress();
    if (!report_.empty()) write_report(report, report_, options_.overwrite);
    if (console.json()) {
      console.json_line(quantize_report_json(report));
    } else {
      for (const std::string& note : report.notes)
        console.note("note: " + note);
      console.out(to_text(report, console.verbose()));
    }
    if (!report.useless) {
      warn_of_quality(console, report);
      return kSuccess;
    }
    const double ratio = report.quality[0].ratio();
    if (options_.accept_quality) {
      console.warn(fmt::format(
          "the perplexity is {:.4g} times the source's: the model is of no use", ratio));
      return kSuccess;
    }
    console.clear_progress();
    report_error(
        "tensorsharp",
        fmt::format("the perplexity is {:.4g} times the source's, more than {}: the model is "
                    "of no use and was not kept\ntry {}; or keep it with --accept-quality",
                    ratio, kUselessRatio, advice()));
    return kAnswerIsNo;
  }

 private:
  /// Above this ratio a model is noticeably worse than its source.
  static constexpr double kPoorRatio = 1.5;
  /// Fewer tokens give a ratio that is off by several percent.
  static constexpr int64_t kFewTokens = 2000;

  void warn_of_quality(Console& console, const QuantizeReport& report) const {
    if (report.quality.empty()) return;
    const Quality& all = report.quality[0];
    if (all.ratio() > kPoorRatio)
      console.warn(fmt::format(
          "the perplexity is {:.3g} times the source's: expect clearly worse answers\ntry {}",
          all.ratio(), advice()));
    if (all.n_tokens < kFewTokens)
      console.warn(fmt::format(
          "quality was measured on {} tokens only: give more text with --holdout for a figure to "
          "rely on",
          all.n_tokens));
  }

  /// The types fix how many weights share a scale.
  void choose_group(int64_t group) {
    const auto group_of = [](std::string_view scheme) {
      const Codec* codec = find_codec(scheme);
      return codec != nullptr && codec->is_ternary() ? int64_t{codec->group_elems} : 0;
    };
    if (group_of(options_.scheme) == group) return;
    if (options_.scheme == QuantizeOptions{}.scheme) {
      for (const char* scheme : {"q2_0", "tq1_0"}) {
        if (group_of(scheme) != group) continue;
        options_.scheme = scheme;
        return;
      }
    }
    throw InvalidArgument(fmt::format(
        "--group {}: {} does not have groups of that size; q2_0 has groups of 64, ptq1_0 and pq2_0 "
        "of 128, tq1_0 and tq2_0 of 256",
        group, options_.scheme));
  }

  static std::string absorbed_text(const QuantizeReport& report) {
    const auto n = std::count_if(report.tensors.begin(), report.tensors.end(),
                                 [](const QuantizedTensor& t) { return t.absorbed; });
    return fmt::format(
        "Rotation: absorbed by the weights of {} matrices (residual stream: {}, values: block {}), "
        "seed {}; nothing is rotated at run time\n",
        n,
        report.absorbed_block > 0 ? fmt::format("block {}", report.absorbed_block)
                                  : std::string("not rotated"),
        report.absorbed_value_block, report.seed);
  }

  void read_search() {
    for (size_t begin = 0; begin < search_.size();) {
      const size_t end = std::min(search_.find(',', begin), search_.size());
      const std::string item = search_.substr(begin, end - begin);
      begin = end + 1;
      if (item == "rotation") {
        if (options_.rotate == "none" || options_.rotate == "absorbed")
          throw InvalidArgument(
              fmt::format("--search rotation needs a rotation with signs of the file, not --rotate "
                          "{}",
                          options_.rotate));
        options_.search_rotation = true;
      } else if (item == "threshold") {
        if (options_.method != TernaryMethod::kTopk)
          throw InvalidArgument("--search threshold goes with --method topk");
        options_.search_threshold = true;
      } else if (item == "scale") {
        throw InvalidArgument(
            "--search scale: methods gptq, tuned and mse solve for the best scales exactly; there "
            "is nothing to search");
      } else {
        throw InvalidArgument(
            fmt::format("--search {}: expected rotation or threshold, or both", search_));
      }
    }
  }

  void read_plane_fit() {
    if (plane_fit_.empty()) return;
    if (plane_fit_ == "progressive") {
      options_.plane_fit = PlaneFit::kProgressive;
    } else if (plane_fit_ == "greedy") {
      options_.plane_fit = PlaneFit::kGreedy;
    } else if (plane_fit_ == "free") {
      options_.plane_fit = PlaneFit::kFree;
    } else if (plane_fit_ == "tied") {
      options_.plane_fit = PlaneFit::kTied;
    } else {
      throw InvalidArgument(
          fmt::format("--plane-fit {}: expected progressive, greedy, free or tied", plane_fit_));
    }
    if (options_.n_planes == 1 && !target_bits_)
      throw InvalidArgument("--plane-fit is about several planes; give --planes 2 or 3");
  }

  void check_report_path() const {
    std::error_code ec;
    if (!options_.overwrite && std::filesystem::exists(report_, ec))
      throw InvalidArgument(
          fmt::format("{}: exists already; use --force to overwrite it", report_));
  }

  std::string advice() const {
    std::vector<std::string> ideas;
    if (calibration_.empty())
      ideas.emplace_back("--calib FILE, which fits the weights to real text");
    if (options_.n_planes == 1) ideas.emplace_back("--planes 2");
    if (options_.rotate == "none") ideas.emplace_back("--rotate auto");
    if (options_.policy.empty()) ideas.emplace_back("--policy ffn-only or attention-f16");
    if (!calibration_.empty() && !options_.tune) ideas.emplace_back("--method tuned");
    if (ideas.empty()) ideas.emplace_back("more planes or more calibration text");
    return fmt::format("{}", fmt::join(ideas, ", or "));
  }

  std::string to_text(const QuantizeReport& report, bool verbose) const {
    std::string text;
    if (verbose || options_.dry_run) {
      std::vector<std::vector<std::string>> rows = {
          {"tensor", "from", "to", "shape", "bytes", "remark"}};
      // What a note says about many tensors is not said again of each.
      const auto noted = [&](const std::string& remark) {
        return std::any_of(report.notes.begin(), report.notes.end(), [&](const std::string& note) {
          return note.find(remark) != std::string::npos;
        });
      };
      for (const QuantizedTensor& t : report.tensors) {
        const std::string to =
            fmt::format("{}{}{}", t.n_planes > 1 ? fmt::format("{} x ", t.n_planes) : "", t.type,
                        t.rotated    ? ", rotated"
                        : t.absorbed ? ", rotation absorbed"
                                     : "");
        rows.push_back({printable(t.name), t.source_type, to,
                        fmt::format("{{{}, {}}}", t.n_cols, t.n_rows), grouped(t.bytes),
                        noted(t.remark) ? "" : t.remark});
      }
      text += table(rows, {4}) + "\n";
    }
    text += "Bytes\n";
    for (const BitTerm& term : report.account.terms) {
      text += fmt::format("  {:>15}  {}", grouped(term.bytes), term.what);
      if (term.weights > 0)
        text += fmt::format(" ({:.4f} bits per weight)", 8.0 * static_cast<double>(term.bytes) /
                                                             static_cast<double>(term.weights));
      text += "\n";
    }
    text += fmt::format("  {:>15}  together; layers {:.4f}, all tensors {:.4f} bits per weight\n",
                        grouped(report.account.file_bytes), report.linear_bits_per_weight,
                        report.bits_per_weight);
    text += report.absorbed_block > 0 || report.absorbed_value_block > 0 ? absorbed_text(report)
            : report.rotation_block > 0
                ? fmt::format("Rotation: block {}, {} matrices, seed {}\n", report.rotation_block,
                              report.n_rotated, report.seed)
                : std::string("Rotation: none\n");
    if (options_.dry_run) return text + "Nothing was written (--dry-run).\n";
    if (report.tune_kl_before >= 0)
      text += fmt::format("Tuned: KL divergence {:.4f} before, {:.4f} after {} of {} steps\n",
                          report.tune_kl_before, report.tune_kl_after, report.tune_steps_kept,
                          options_.tune_steps);
    for (const Quality& q : report.quality) {
      // One text's figures are those of all.
      if (!q.domain.empty() && report.quality.size() == 2) continue;
      text += fmt::format(
          "Quality{}: perplexity {:.3f}, source {:.3f}, ratio {:.3f}; KL divergence {:.4f} nats "
          "(median {:.4f}); same most likely token {:.1f} %; {} tokens\n",
          q.domain.empty() ? "" : " on " + printable(q.domain), q.perplexity, q.perplexity_source,
          q.ratio(), q.kl_mean, q.kl_median, 100 * q.top1_agreement, q.n_tokens);
    }
    if (report.useless && !options_.accept_quality) return text;
    std::error_code ec;
    const uint64_t planes =
        report.residual_output.empty() ? 0 : std::filesystem::file_size(report.residual_output, ec);
    if (planes > 0 && !ec)
      text += fmt::format("further planes: {}: {}\n", report.residual_output.string(),
                          human_bytes(planes));
    text += fmt::format("{}: {}{} in {:.1f} s, peak memory {}\n", output_,
                        human_bytes(report.output_bytes - planes),
                        planes > 0 ? fmt::format(", {} together with the further planes",
                                                 human_bytes(report.output_bytes))
                                   : "",
                        report.seconds, human_bytes(report.peak_rss_bytes));
    return text;
  }

  std::string input_, output_, method_, plane_fit_, sparsity_, search_, report_;
  std::vector<std::string> calibration_, holdout_;
  std::optional<float> threshold_, damping_, correction_, target_bits_, tune_rate_;
  std::optional<int64_t> seed_, tune_steps_, group_;
  QuantizeOptions options_;
};

}  // namespace

std::unique_ptr<Command> make_quantize_command() {
  return std::make_unique<QuantizeCommand>();
}

}  // namespace ts::cli
