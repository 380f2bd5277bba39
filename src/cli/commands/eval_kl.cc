#include <cmath>
#include <filesystem>

#include <fmt/format.h>

#include <tensorsharp/engine.hpp>

#include "base/sha256.h"
#include "cli/commands/commands.h"
#include "cli/eval_options.h"
#include "cli/interrupt.h"
#include "cli/text_output.h"
#include "eval/base_logits_file.h"
#include "eval/kl_divergence.h"
#include "text/tokenizer.h"

namespace ts::cli {
namespace {

using nlohmann::ordered_json;

class EvalKlCommand : public Command {
 public:
  EvalKlCommand()
      : Command(
            "eval kl",
            "Measures how far a model's predictions are from those of a base model on a text: KL "
            "divergence per token, agreement on the most likely token, change of the right token's "
            "probability, ratio of the perplexities. The base is another model, run in step, or a "
            "file of its probabilities (--save-base; llama.cpp's --kl-divergence-base files will "
            "do). The second half of each window of --ctx tokens is scored, as by eval perplexity.",
            "tensorsharp eval kl model-q2.gguf --base model-f16.gguf --data wiki.test.raw --chunks "
            "40\n"
            "tensorsharp eval kl model-f16.gguf --data wiki.test.raw --chunks 40 --save-base "
            "base.kld\n"
            "tensorsharp eval kl model-q2.gguf --base base.kld\n"
            "tensorsharp eval kl model.gguf --base model.gguf --base-exact --data wiki.test.raw") {}

  void add_options(OptionParser& options) override {
    options.group("Method");
    options.text("--base", base_path_, "MODEL|FILE",
                 "what to compare with: a model, or a file of probabilities");
    options.text("--data", data_path_, "FILE",
                 "the text to measure on; not needed with a file of probabilities, which holds it");
    options.integer("--chunks", chunks_, 1, INT64_MAX, "only the first N windows");
    options.text("--save-base", save_base_, "FILE",
                 "write the base's probabilities (without --base: those of MODEL) to FILE");
    options.flag("--force", force_, "let --save-base replace an existing file");
    options.flag("--base-exact", base_exact_, "compute the base with f32 activations");
    options.choice("--base-kv", base_kv_, {"f32", "f16", "q8"},
                   "type of the base's key-value cache (default: that of the model)");
    eval_.add(options, "512, the window");
  }

  void check_options() override {
    eval_.check();
    if (base_path_.empty() && save_base_.empty())
      throw InvalidArgument(
          "give --base, a model or file to compare with, or --save-base to make such a file");
    if (!save_base_.empty() && !eval_.resume.empty())
      throw InvalidArgument(
          "--save-base writes its file in one go; without --resume it can be combined with --base");
    if (base_path_.empty() && (base_exact_ || !base_kv_.empty()))
      throw InvalidArgument("--base-exact and --base-kv need a model given with --base");
  }

  int run(Console& console) override {
    std::error_code unknown;
    if (!base_path_.empty() && !std::filesystem::exists(base_path_, unknown))
      throw IoError(fmt::format("{}: no such file; --base takes a model or a file of probabilities",
                                base_path_));
    if (is_base_logits_file(base_path_)) {
      if (!save_base_.empty() || base_exact_ || !base_kv_.empty())
        throw InvalidArgument(fmt::format(
            "--save-base, --base-exact and --base-kv need a model; {} is a file of probabilities",
            base_path_));
      stored_.emplace(base_path_);
    }
    if (data_path_.empty() && !stored_)
      throw InvalidArgument("give --data, the text to measure on");
    if (data_path_.empty() && eval_.expects_sha())
      throw InvalidArgument("--expect-sha is about --data; give both");
    std::optional<EvalData> data;
    if (!data_path_.empty()) data = eval_.read_data(data_path_);

    LoadOptions load = eval_.model.load_options();
    load.context = window();
    const auto engine = eval_.model.load(console, load);
    console.note(describe_model(engine->info()));
    const PerplexityPlan plan = make_plan(*engine, data);
    const uint64_t n_windows =
        chunks_ ? std::min<uint64_t>(static_cast<uint64_t>(*chunks_), plan.windows.size())
                : plan.windows.size();
    if (base_path_.empty()) return save_only(console, engine, plan, n_windows, *data);
    return compare(console, engine, load, plan, n_windows, data);
  }

 private:
  int64_t window() const {
    if (!stored_) return eval_.model.context.value_or(512);
    if (eval_.model.context && *eval_.model.context != stored_->n_ctx())
      throw InvalidArgument(fmt::format("--ctx {}: {} holds windows of {} tokens",
                                        *eval_.model.context, base_path_, stored_->n_ctx()));
    return stored_->n_ctx();
  }

  PerplexityPlan make_plan(const Engine& engine, const std::optional<EvalData>& data) const {
    PerplexityPlan plan;
    if (data) {
      try {
        plan = plan_text_chunks(engine, data->text, window());
      } catch (const InvalidArgument& error) {
        throw InvalidArgument(fmt::format("{}: {}", data->path, error.what()));
      }
    }
    if (!stored_) return plan;
    if (stored_->n_vocab() != engine.info().n_vocab)
      throw InvalidArgument(
          fmt::format("{} is about a vocabulary of {} tokens, the model's has {}\n  Use a base "
                      "with the model's vocabulary.",
                      base_path_, stored_->n_vocab(), engine.info().n_vocab));
    const std::vector<int32_t>& tokens = stored_->tokens();
    if (data && (tokens.size() > plan.tokens.size() ||
                 !std::equal(tokens.begin(), tokens.end(), plan.tokens.begin())))
      throw InvalidArgument(
          fmt::format("{} was made from another text than {}, or by another tokenizer\n  Leave "
                      "--data out to use the tokens in the file.",
                      base_path_, data->path));
    return plan_stored(tokens, stored_->n_ctx(), bos_in_front(*engine.tokenizer()));
  }

  static PerplexityPlan plan_stored(const std::vector<int32_t>& tokens, int64_t n_ctx,
                                    std::optional<int32_t> bos) {
    PerplexityPlan plan;
    plan.context = n_ctx;
    plan.bos = bos;
    plan.tokens = tokens;
    plan.windows = chunk_windows(tokens.size(), n_ctx, bos.has_value());
    return plan;
  }

  std::span<const int32_t> plan_tokens(const PerplexityPlan& plan, uint64_t n_windows) const {
    return std::span(plan.tokens).first(n_windows * static_cast<size_t>(plan.context));
  }

  int save_only(Console& console, const std::shared_ptr<const Engine>& engine,
                const PerplexityPlan& plan, uint64_t n_windows, const EvalData& data) const {
    refuse_input_as_output("--save-base", save_base_);
    SessionLogits source(engine, &interrupt_token());
    BaseLogitsWriter writer(save_base_, force_, plan.context, source.n_vocab(),
                            plan_tokens(plan, n_windows));
    BaseModel base(source, &writer);
    visit_base(base, plan, n_windows, console.progress());
    writer.finish();
    ordered_json result = {{"output", save_base_},  {"output_bytes", writer.size()},
                           {"n_chunks", n_windows}, {"context", plan.context},
                           {"data", data.path},     {"data_sha256", data.sha256}};
    result.update(eval_.provenance(*engine));
    if (console.json())
      console.json_line(result);
    else
      console.print("{}: {} windows of {} tokens, {}\n", printable(save_base_), n_windows,
                    plan.context, human_bytes(writer.size()));
    return kSuccess;
  }

  std::shared_ptr<const Engine> load_base(Console& console, const LoadOptions& model_load) const {
    LoadOptions load = model_load;
    load.exact |= base_exact_;
    if (!base_kv_.empty()) load.kv = kv_type_named(base_kv_);
    console.note("base:");
    const auto engine = eval_.model.load(console, load, [this](const LoadOptions& options) {
      return Engine::load(base_path_, options);
    });
    console.note(describe_model(engine->info()));
    return engine;
  }

  int compare(Console& console, const std::shared_ptr<const Engine>& engine,
              const LoadOptions& load, const PerplexityPlan& plan, uint64_t n_windows,
              const std::optional<EvalData>& data) {
    std::shared_ptr<const Engine> base_engine;
    std::optional<SessionLogits> base_source;
    std::optional<BaseLogitsWriter> writer;
    std::unique_ptr<BaseDistributions> base;
    if (stored_) {
      base = std::make_unique<BaseFile>(*stored_);
    } else {
      base_engine = load_base(console, load);
      require_same_vocabulary(*base_engine->tokenizer(), base_path_, *engine->tokenizer(),
                              eval_.model.path);
      if (plan_text_chunks(*base_engine, data->text, plan.context).tokens != plan.tokens)
        throw InvalidArgument(
            fmt::format("{} and {} split the text into different tokens\n  Their tokenizers "
                        "differ in more than the vocabulary.",
                        base_path_, eval_.model.path));
      base_source.emplace(base_engine, &interrupt_token());
      if (!save_base_.empty()) {
        refuse_input_as_output("--save-base", save_base_);
        writer.emplace(save_base_, force_, plan.context, base_engine->info().n_vocab,
                       plan_tokens(plan, n_windows));
      }
      base = std::make_unique<BaseModel>(*base_source, writer ? &*writer : nullptr);
    }
    ResumeFile file =
        eval_.resume_file(console, *engine, load, "kl", data ? data->sha256 : "",
                          {{"base_sha256", eval_.resume.empty() ? "" : base_sha(console)},
                           {"base_exact", load.exact || base_exact_},
                           {"base_kv", base_kv_}});
    DivergenceRun run;
    if (const auto earlier = file.load()) {
      run = run_of(file, *earlier);
      if (run.n_windows > n_windows)
        throw InvalidArgument(
            fmt::format("--resume {}: it already covers {} windows, more than the {} asked for",
                        file.name(), run.n_windows, n_windows));
      console.note_format("going on after {} windows", run.n_windows);
    }
    SessionLogits model(engine, &interrupt_token());
    const bool complete = run_resumable(
        file, [&] { return state_of(run); },
        [&] {
          compare_windows(*base, model, plan, n_windows, run, console.progress(),
                          [&](const DivergenceRun& now) {
                            if (console.verbose()) note_window(console, now);
                            if (file.due()) file.save(state_of(now));
                          });
        });
    if (complete && writer) writer->finish();
    report(console, *engine, plan, run, data, complete);
    if (complete) return kSuccess;
    note_interrupted(console, file, run.n_windows, n_windows, "windows");
    return kInterrupted;
  }

  std::string base_sha(Console& console) const {
    return stored_ ? sha256_file(base_path_) : model_data_sha(console, base_path_);
  }

  static void note_window(Console& console, const DivergenceRun& run) {
    const DivergenceResult r = summarise(run.positions);
    console.note_format("[{}] KL {:.5f}, same top {:.2f} %", run.n_windows, r.kl.value,
                        100 * r.top1_agreement.value);
  }

  static ordered_json state_of(const DivergenceRun& run) {
    std::vector<double> numbers;
    std::string same;
    for (const PositionDivergence& p : run.positions) {
      numbers.insert(numbers.end(), {p.kl, p.nll_base, p.nll});
      same += p.same_top ? '1' : '0';
    }
    return {{"windows", run.n_windows}, {"positions_bits", bits_of(numbers)}, {"same_top", same}};
  }

  static DivergenceRun run_of(const ResumeFile& file, const nlohmann::json& state) {
    DivergenceRun run;
    run.n_windows = file.count_of(state, "windows");
    const std::vector<double> numbers = file.reals_of(state, "positions_bits");
    if (!state.contains("same_top") || !state["same_top"].is_string()) file.fail("no \"same_top\"");
    const std::string same = state["same_top"].get<std::string>();
    if (numbers.size() != 3 * same.size())
      file.fail("\"positions_bits\" and \"same_top\" count different positions");
    for (size_t i = 0; i < same.size(); ++i)
      run.positions.push_back(
          {numbers[3 * i], numbers[3 * i + 1], numbers[3 * i + 2], same[i] == '1'});
    return run;
  }

  void report(Console& console, const Engine& engine, const PerplexityPlan& plan,
              const DivergenceRun& run, const std::optional<EvalData>& data, bool complete) const {
    if (run.positions.empty()) {
      if (console.json())
        console.json_line({{"kl_mean", nullptr}, {"n_tokens", 0}, {"complete", complete}});
      return;
    }
    const DivergenceResult r = summarise(run.positions);
    const Interval kl = interval_95(r.kl), ratio = interval_95(r.ln_ratio);
    const Interval top = proportion_interval_95(r.n_same_top, r.n_tokens);
    ordered_json out = {
        {"kl_mean", r.kl.value},
        {"kl_std_error", r.kl.std_error},
        {"kl_confidence_interval_95", {kl.low, kl.high}},
        {"kl_median", r.kl_median},
        {"kl_p90", r.kl_p90},
        {"kl_p95", r.kl_p95},
        {"kl_p99", r.kl_p99},
        {"kl_p999", r.kl_p999},
        {"kl_max", r.kl_max},
        {"top1_agreement", r.top1_agreement.value},
        {"top1_agreement_std_error", r.top1_agreement.std_error},
        {"top1_confidence_interval_95", {top.low, top.high}},
        {"p_change_mean", r.p_change.value},
        {"p_change_mean_std_error", r.p_change.std_error},
        {"p_change_rms", r.p_change_rms.value},
        {"p_change_rms_std_error", r.p_change_rms.std_error},
        {"perplexity", std::exp(r.mean_nll.value)},
        {"perplexity_base", std::exp(r.mean_nll_base.value)},
        {"perplexity_ratio", std::exp(r.ln_ratio.value)},
        {"ln_perplexity_ratio", r.ln_ratio.value},
        {"ln_perplexity_ratio_std_error", r.ln_ratio.std_error},
        {"perplexity_ratio_confidence_interval_95", {std::exp(ratio.low), std::exp(ratio.high)}},
        {"n_tokens", r.n_tokens},
        {"n_chunks", run.n_windows},
        {"context", plan.context},
        {"base", base_path_},
        {"base_kind", stored_ ? "file" : "model"},
        {"base_exact", base_exact_ || eval_.model.load_options().exact},
        {"data", data ? ordered_json(data->path) : ordered_json()},
        {"data_sha256", data ? ordered_json(data->sha256) : ordered_json()},
        {"data_tokens", plan.tokens.size()},
    };
    if (stored_) out["base_exact"] = nullptr;
    if (!save_base_.empty() && complete) out["output"] = save_base_;
    out.update(eval_.provenance(engine));
    out["complete"] = complete;
    if (console.json()) {
      console.json_line(out);
      return;
    }
    console.out(table(
        {{"KL divergence", fmt::format("{:.6f} +/- {:.6f}", r.kl.value, r.kl.std_error)},
         {"  median", fmt::format("{:.6f}", r.kl_median)},
         {"  90, 95, 99, 99.9 %",
          fmt::format("{:.5f}, {:.5f}, {:.5f}, {:.5f}", r.kl_p90, r.kl_p95, r.kl_p99, r.kl_p999)},
         {"  maximum", fmt::format("{:.5f}", r.kl_max)},
         {"same top token", fmt::format("{:.3f} % +/- {:.3f} %", 100 * r.top1_agreement.value,
                                        100 * r.top1_agreement.std_error)},
         {"right token's p",
          fmt::format("mean change {:+.4f} % +/- {:.4f} %, rms {:.4f} % +/- "
                      "{:.4f} %",
                      100 * r.p_change.value, 100 * r.p_change.std_error,
                      100 * r.p_change_rms.value, 100 * r.p_change_rms.std_error)},
         {"ln(ppl / base ppl)",
          fmt::format("{:+.6f} +/- {:.6f}", r.ln_ratio.value, r.ln_ratio.std_error)},
         {"perplexity", fmt::format("{:.4f}, base {:.4f}, ratio {:.4f}", std::exp(r.mean_nll.value),
                                    std::exp(r.mean_nll_base.value), std::exp(r.ln_ratio.value))},
         {"scored", fmt::format("{} tokens, {} windows of {}", grouped(r.n_tokens),
                                grouped(run.n_windows), plan.context)},
         {"base", printable(base_path_)},
         {"data sha256", data ? data->sha256 : std::string("tokens stored in the base")},
         {"kernels", kernels_text(out)}},
        {}));
  }

  EvalOptions eval_;
  std::string base_path_, data_path_, save_base_, base_kv_;
  std::optional<int64_t> chunks_;
  std::optional<BaseLogitsReader> stored_;
  bool force_ = false, base_exact_ = false;
};

}  // namespace

std::unique_ptr<Command> make_eval_kl_command() {
  return std::make_unique<EvalKlCommand>();
}

}  // namespace ts::cli
