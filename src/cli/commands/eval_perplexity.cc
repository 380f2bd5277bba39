#include <chrono>
#include <cmath>
#include <map>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <tensorsharp/engine.hpp>

#include "base/sha256.h"
#include "cli/commands/commands.h"
#include "cli/input_text.h"
#include "cli/interrupt.h"
#include "cli/kernel_names.h"
#include "cli/model_options.h"
#include "cli/perplexity_state.h"
#include "cli/text_output.h"
#include "eval/perplexity.h"
#include "format/gguf.h"
#include "text/tokenizer.h"

namespace ts::cli {
namespace {

using nlohmann::ordered_json;

constexpr auto kSaveEvery = std::chrono::seconds(20);

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
    options.text("--expect-sha", expect_sha_, "HEX",
                 "refuse data with another SHA-256 (a prefix of at least 8 digits will do)");
    options.text("--resume", resume_, "FILE",
                 "keep the state in FILE, and go on from it when it exists");
    model_.add(options, true);
  }

  void check_options() override {
    if (stride_ && separator_) throw InvalidArgument("give --stride or --documents, not both");
    if (chunks_ && separator_)
      throw InvalidArgument("--chunks counts windows; with --documents give --limit");
    if (limit_ && !separator_)
      throw InvalidArgument("--limit counts documents; give --documents too");
    if (expect_sha_ &&
        (expect_sha_->size() < 8 || expect_sha_->size() > 64 ||
         expect_sha_->find_first_not_of("0123456789abcdefABCDEF") != std::string::npos))
      throw InvalidArgument("--expect-sha takes 8 to 64 hexadecimal digits");
  }

  int run(Console& console) override {
    const std::string text = read_text_file(data_);
    const std::string sha = sha256_hex(std::as_bytes(std::span(text.data(), text.size())));
    check_sha(sha);

    const int64_t context = model_.context.value_or(512);
    LoadOptions load = model_.load_options();
    load.context = context;
    const auto engine = model_.load(console, load);
    console.note(describe_model(engine->info()));
    const PerplexityPlan plan = [&] {
      try {
        return make_plan(*engine, text, context);
      } catch (const InvalidArgument& error) {
        throw InvalidArgument(fmt::format("{}: {}", data_, error.what()));
      }
    }();
    const uint64_t n_windows =
        chunks_ ? std::min<uint64_t>(static_cast<uint64_t>(*chunks_), plan.windows.size())
                : plan.windows.size();

    ordered_json identity = {{"model", engine->info().name},
                             {"architecture", engine->info().architecture},
                             {"scheme", engine->info().scheme},
                             {"file_bytes", engine->info().file_bytes},
                             {"file_sha256", resume_.empty() ? "" : file_sha(console)},
                             {"isa", engine->info().isa},
                             {"data_sha256", sha},
                             {"mode", perplexity_mode_name(plan.mode)},
                             {"context", context},
                             {"stride", plan.stride},
                             {"separator", separator_.value_or("")},
                             {"limit", limit_.value_or(-1)},
                             {"exact", load.exact},
                             {"kv", static_cast<int>(load.kv)}};
    const PerplexityState state(resume_, identity);
    PerplexitySums sums;
    if (const auto earlier = state.load()) {
      sums = *earlier;
      if (sums.n_windows > n_windows)
        throw InvalidArgument(
            fmt::format("--resume {}: it already covers {} windows, more than the {} asked for",
                        resume_, sums.n_windows, n_windows));
      console.note_format("going on after {} windows", sums.n_windows);
    }
    const bool complete = score(console, engine, plan, n_windows, state, sums);
    ordered_json result = to_json(*engine, plan, sums, sha, text.size(), context);
    result["complete"] = complete;
    if (console.json()) {
      console.json_line(result);
    } else if (complete || sums.n_windows > 0) {
      console.out(to_text(plan, sums, result));
    }
    if (complete) return kSuccess;
    console.note_format("interrupted after {} of {} windows{}", sums.n_windows, n_windows,
                        resume_.empty() ? "" : "; the same command goes on");
    return kInterrupted;
  }

 private:
  /// Of all parts of the model file, so that figures of two models are never mixed.
  std::string file_sha(Console& console) const {
    const auto file = GgufFile::open(model_.path);
    std::string all;
    const Progress progress = console.progress();
    for (const auto& tensor : file->tensors()) {
      progress("hashing the model", all.size() / 64, file->tensors().size());
      all += sha256_hex(tensor.data);
    }
    console.clear_progress();
    return sha256_hex(std::as_bytes(std::span(all)));
  }

  void check_sha(std::string_view sha) const {
    if (!expect_sha_) return;
    std::string wanted = *expect_sha_;
    std::transform(wanted.begin(), wanted.end(), wanted.begin(),
                   [](char c) { return c >= 'A' && c <= 'F' ? static_cast<char>(c + 32) : c; });
    if (!sha.starts_with(wanted))
      throw FormatError(
          fmt::format("{}: SHA-256 is {}, expected {}\n  It is another text, or "
                      "another variant of it (line ends, a stripped last line).",
                      data_, sha, wanted));
  }

  PerplexityPlan make_plan(const Engine& engine, const std::string& text, int64_t context) const {
    const Tokenizer& tokenizer = *engine.tokenizer();
    std::optional<int32_t> bos;
    if (tokenizer.adds_bos()) bos = tokenizer.data().bos;
    if (separator_) {
      std::vector<std::vector<int32_t>> documents;
      for (const std::string_view document :
           split_documents(text, unescape(*separator_, "--documents"), limit_.value_or(-1)))
        documents.push_back(engine.tokenize(document, false, false));
      return plan_documents(documents, context, bos);
    }
    if (stride_) return plan_sliding(engine.tokenize(text, false, false), context, *stride_, bos);
    // The tool whose figures these compare with drops one newline at the end of its input file.
    std::string_view body = text;
    if (body.ends_with('\n')) body.remove_suffix(1);
    return plan_chunks(engine.tokenize(body, true, false), context, bos);
  }

  /// True when all windows were scored; false after an interrupt.
  static bool score(Console& console, const std::shared_ptr<const Engine>& engine,
                    const PerplexityPlan& plan, uint64_t n_windows, const PerplexityState& state,
                    PerplexitySums& sums) {
    SessionLogits source(engine, &interrupt_token());
    const auto tokenizer = engine->tokenizer();
    auto saved = std::chrono::steady_clock::now();
    try {
      score_windows(
          source, plan, n_windows,
          [&](int32_t id) { return tokenizer->token_bytes(id, true).size(); }, sums,
          console.progress(),
          [&](const PerplexitySums& now) {
            if (console.verbose())
              console.note_format("[{}] {:.4f}", now.n_windows, perplexity_of(now).perplexity);
            if (std::chrono::steady_clock::now() - saved < kSaveEvery) return;
            state.save(now);
            saved = std::chrono::steady_clock::now();
          });
    } catch (const Cancelled&) {
      state.save(sums);
      return false;
    }
    state.save(sums);
    return true;
  }

  ordered_json to_json(const Engine& engine, const PerplexityPlan& plan, const PerplexitySums& sums,
                       const std::string& sha, size_t data_bytes, int64_t context) const {
    const PerplexityResult result = perplexity_of(sums);
    // What cannot be known from so few tokens is null.
    const auto known = [](bool is_known, const ordered_json& value) {
      return is_known ? value : ordered_json();
    };
    const bool any = sums.n_tokens > 0, several = sums.n_tokens > 1;
    const auto [low, high] = interval_95(result);
    ordered_json out = {
        {"perplexity", known(any, result.perplexity)},
        {"std_error", known(several, result.std_error)},
        {"confidence_interval_95", known(several, {low, high})},
        {"bits_per_byte", known(sums.n_bytes > 0, result.bits_per_byte)},
        {"mean_nll", known(any, result.mean_nll)},
        {"n_tokens", sums.n_tokens},
        {"n_chunks", sums.n_windows},
        {"context", context},
        {"stride", nullptr},
        {"mode", perplexity_mode_name(plan.mode)},
        {"bos", nullptr},
        {"bos_rule", bos_rule(plan)},
        {"truncated_documents", plan.n_truncated},
        {"data", data_},
        {"data_sha256", sha},
        {"data_bytes", data_bytes},
        {"data_tokens", plan.tokens.size()},
        {"scored_bytes", sums.n_bytes},
        {"model", engine.info().name},
        {"scheme", engine.info().scheme},
        {"isa", engine.info().isa},
        {"threads", engine.info().n_threads},
        {"kernels", kernel_names_of_model(model_.path, engine.info().isa)},
    };
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
    std::string kernels;
    for (const auto& [codec, name] : j["kernels"].items())
      kernels +=
          fmt::format("{}{}: {}", kernels.empty() ? "" : ", ", codec, name.get<std::string>());
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
         {"kernels", kernels}},
        {});
  }

  ModelOptions model_;
  std::string data_, resume_;
  std::optional<std::string> separator_, expect_sha_;
  std::optional<int64_t> stride_, limit_, chunks_;
};

}  // namespace

std::unique_ptr<Command> make_eval_perplexity_command() {
  return std::make_unique<EvalPerplexityCommand>();
}

}  // namespace ts::cli
