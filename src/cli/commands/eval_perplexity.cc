#include <cmath>

#include <fmt/format.h>

#include <tensorsharp/engine.hpp>

#include "cli/commands/commands.h"
#include "cli/eval_options.h"
#include "cli/interrupt.h"
#include "cli/text_output.h"
#include "eval/perplexity.h"
#include "text/tokenizer.h"

namespace ts::cli {
namespace {

using nlohmann::ordered_json;

class EvalPerplexityCommand : public Command {
 public:
  EvalPerplexityCommand()
      : Command("eval perplexity",
                "Measures the perplexity of a text. Without further options in windows of --ctx "
                "tokens of which the second half is scored, as llama.cpp's tool does, so that "
                "figures compare. --stride scores every token with at least ctx - stride tokens "
                "before it; --documents scores each document alone.",
                "tensorsharp eval perplexity model.gguf --data wiki.test.raw\n"
                "tensorsharp eval perplexity model.gguf --data wiki.test.raw --chunks 40 --resume "
                "run.json\n"
                "tensorsharp eval perplexity model.gguf --data wiki.test.raw --ctx 2048 --stride "
                "512\n"
                "tensorsharp eval perplexity model.gguf --data stories.txt --documents "
                "'<|endoftext|>' --limit 40") {}

  void add_options(OptionParser& options) override {
    options.group("Method");
    options.text("--data", data_, "FILE", "the text to measure on");
    options.required();
    options.integer("--stride", stride_, 1, INT32_MAX, "sliding windows that advance by N tokens");
    options.text("--documents", separator_, "SEPARATOR",
                 "each document alone; \\n in the separator is a newline");
    options.integer("--limit", limit_, 1, INT64_MAX, "only the first N documents");
    options.integer("--chunks", chunks_, 1, INT64_MAX, "only the first N windows");
    eval_.add(options, "512, the window");
  }

  void check_options() override {
    if (stride_ && separator_) throw InvalidArgument("give --stride or --documents, not both");
    if (chunks_ && separator_)
      throw InvalidArgument("--chunks counts windows; with --documents give --limit");
    if (limit_ && !separator_)
      throw InvalidArgument("--limit counts documents; give --documents too");
    eval_.check();
  }

  int run(Console& console) override {
    const EvalData data = eval_.read_data(data_);

    const int64_t context = eval_.model.context.value_or(512);
    LoadOptions load = eval_.model.load_options();
    load.context = context;
    const auto engine = eval_.model.load(console, load);
    console.note(describe_model(engine->info()));
    const PerplexityPlan plan = [&] {
      try {
        return make_plan(*engine, data.text, context);
      } catch (const InvalidArgument& error) {
        throw InvalidArgument(fmt::format("{}: {}", data_, error.what()));
      }
    }();
    const uint64_t n_windows =
        chunks_ ? std::min<uint64_t>(static_cast<uint64_t>(*chunks_), plan.windows.size())
                : plan.windows.size();

    ResumeFile file = eval_.resume_file(console, *engine, load, "perplexity", data.sha256,
                                        {{"mode", perplexity_mode_name(plan.mode)},
                                         {"stride", plan.stride},
                                         {"separator", separator_.value_or("")},
                                         {"limit", limit_.value_or(-1)}});
    PerplexitySums sums;
    if (const auto earlier = file.load()) {
      sums = sums_of(file, *earlier);
      if (sums.n_windows > n_windows)
        throw InvalidArgument(
            fmt::format("--resume {}: it already covers {} windows, more than the {} asked for",
                        file.name(), sums.n_windows, n_windows));
      console.note_format("going on after {} windows", sums.n_windows);
    }
    const bool complete = run_resumable(
        file, [&] { return state_of(sums); },
        [&] { score(console, engine, plan, n_windows, file, sums); });
    ordered_json result = to_json(*engine, plan, sums, data, context);
    result["complete"] = complete;
    if (console.json()) {
      console.json_line(result);
    } else if (complete || sums.n_windows > 0) {
      console.out(to_text(plan, sums, result));
    }
    if (complete) return kSuccess;
    note_interrupted(console, file, sums.n_windows, n_windows, "windows");
    return kInterrupted;
  }

 private:
  static ordered_json state_of(const PerplexitySums& sums) {
    return {{"windows", sums.n_windows},
            {"tokens", sums.n_tokens},
            {"bytes", sums.n_bytes},
            {"nll_bits", bits_of(sums.nll)},
            {"nll_squared_bits", bits_of(sums.nll_squared)}};
  }

  static PerplexitySums sums_of(const ResumeFile& file, const nlohmann::json& state) {
    PerplexitySums sums;
    sums.n_windows = file.count_of(state, "windows");
    sums.n_tokens = file.count_of(state, "tokens");
    sums.n_bytes = file.count_of(state, "bytes");
    sums.nll = file.real_of(state, "nll_bits");
    sums.nll_squared = file.real_of(state, "nll_squared_bits");
    return sums;
  }

  PerplexityPlan make_plan(const Engine& engine, const std::string& text, int64_t context) const {
    const std::optional<int32_t> bos = bos_in_front(*engine.tokenizer());
    if (separator_) {
      std::vector<std::vector<int32_t>> documents;
      for (const std::string_view document :
           split_documents(text, unescape(*separator_, "--documents"), limit_.value_or(-1)))
        documents.push_back(engine.tokenize(document, false, false));
      return plan_documents(documents, context, bos);
    }
    if (stride_) return plan_sliding(engine.tokenize(text, false, false), context, *stride_, bos);
    return plan_text_chunks(engine, text, context);
  }

  static void score(Console& console, const std::shared_ptr<const Engine>& engine,
                    const PerplexityPlan& plan, uint64_t n_windows, ResumeFile& file,
                    PerplexitySums& sums) {
    SessionLogits source(engine, &interrupt_token());
    const auto tokenizer = engine->tokenizer();
    score_windows(
        source, plan, n_windows,
        [&](int32_t id) { return tokenizer->token_bytes(id, true).size(); }, sums,
        console.progress(),
        [&](const PerplexitySums& now) {
          if (console.verbose())
            console.note_format("[{}] {:.4f}", now.n_windows, perplexity_of(now).perplexity);
          if (file.due()) file.save(state_of(now));
        });
  }

  ordered_json to_json(const Engine& engine, const PerplexityPlan& plan, const PerplexitySums& sums,
                       const EvalData& data, int64_t context) const {
    const PerplexityResult result = perplexity_of(sums);
    const bool any = sums.n_tokens > 0, several = sums.n_tokens > 1;
    const auto [low, high] = interval_95(result);
    ordered_json out = {
        {"perplexity", when_known(any, result.perplexity)},
        {"std_error", when_known(several, result.std_error)},
        {"confidence_interval_95", when_known(several, {low, high})},
        {"bits_per_byte", when_known(sums.n_bytes > 0, result.bits_per_byte)},
        {"mean_nll", when_known(any, result.mean_nll)},
        {"n_tokens", sums.n_tokens},
        {"n_chunks", sums.n_windows},
        {"context", context},
        {"stride", nullptr},
        {"mode", perplexity_mode_name(plan.mode)},
        {"bos", nullptr},
        {"bos_rule", bos_rule(plan)},
        {"truncated_documents", plan.n_truncated},
        {"data", data_},
        {"data_sha256", data.sha256},
        {"data_bytes", data.text.size()},
        {"data_tokens", plan.tokens.size()},
        {"scored_bytes", sums.n_bytes},
    };
    out.update(eval_.provenance(engine));
    if (plan.mode == PerplexityMode::kSliding) out["stride"] = plan.stride;
    if (plan.bos) out["bos"] = *plan.bos;
    return out;
  }

  /// Symmetric in the mean negative log-likelihood, so that it never goes below 1.
  static std::pair<double, double> interval_95(const PerplexityResult& r) {
    const double half = 1.96 * r.std_error / r.perplexity;
    return {std::max(1.0, std::exp(r.mean_nll - half)), std::exp(r.mean_nll + half)};
  }

  static std::string bos_rule(const PerplexityPlan& plan) {
    if (!plan.bos) return "none: the model adds no begin-of-text token";
    return plan.mode == PerplexityMode::kChunks ? "replaces the first token of every window"
                                                : "in front of every window";
  }

  static std::string to_text(const PerplexityPlan& plan, const PerplexitySums& sums,
                             const ordered_json& j) {
    const PerplexityResult r = perplexity_of(sums);
    const auto [low, high] = interval_95(r);
    std::string method =
        fmt::format("{}, window {} tokens", perplexity_mode_name(plan.mode), plan.context);
    if (plan.mode == PerplexityMode::kSliding) method += fmt::format(", stride {}", plan.stride);
    if (plan.n_truncated > 0)
      method += fmt::format(", {} documents cut to the window", plan.n_truncated);
    return table(
        {{"perplexity", fmt::format("{:.4f} +/- {:.4f} (95 %: {:.4f} to {:.4f})", r.perplexity,
                                    r.std_error, low, high)},
         {"bits per byte", fmt::format("{:.4f}", r.bits_per_byte)},
         {"scored", fmt::format("{} tokens, {} bytes, {} windows", grouped(sums.n_tokens),
                                grouped(sums.n_bytes), grouped(sums.n_windows))},
         {"method", method},
         {"begin of text", bos_rule(plan)},
         {"data",
          fmt::format("{}, {} bytes, {} tokens", printable(j["data"].get<std::string>()),
                      grouped(j["data_bytes"].get<uint64_t>()), grouped(plan.tokens.size()))},
         {"data sha256", j["data_sha256"].get<std::string>()},
         {"kernels", kernels_text(j)}},
        {});
  }

  EvalOptions eval_;
  std::string data_;
  std::optional<std::string> separator_;
  std::optional<int64_t> stride_, limit_, chunks_;
};

}  // namespace

std::unique_ptr<Command> make_eval_perplexity_command() {
  return std::make_unique<EvalPerplexityCommand>();
}

}  // namespace ts::cli
