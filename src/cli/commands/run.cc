#include <filesystem>

#include <fmt/format.h>
#include <unistd.h>

#include <tensorsharp/engine.hpp>

#include "base/atomic_file.h"
#include "base/quote_text.h"
#include "cli/chat.h"
#include "cli/commands/commands.h"
#include "cli/generation_statistics.h"
#include "cli/input_text.h"
#include "cli/interrupt.h"
#include "cli/model_options.h"
#include "cli/profile_file.h"
#include "cli/sampling_options.h"
#include "cli/text_output.h"
#include "text/tokenizer.h"

namespace ts::cli {
namespace {

using nlohmann::ordered_json;

class RunCommand : public Command {
 public:
  RunCommand()
      : Command("run",
                "Generates text. With -p or -f, or with text on standard input, one answer; on a "
                "terminal without them a conversation (/help lists its commands). The model's "
                "chat template is applied if it carries one.",
                "tensorsharp run model.gguf\n"
                "tensorsharp run model.gguf -p \"Why is the sky blue?\" -n 200\n"
                "tensorsharp run model.gguf --raw -p \"Once upon a time\" --greedy\n"
                "echo \"Translate to French: good morning\" | tensorsharp run model.gguf\n"
                "tensorsharp run model.gguf -p \"2+2=\" --raw -n 1 --logprobs 5 --json") {}

  void add_options(OptionParser& options) override {
    model_.add(options, kConversationContext);
    options.group("Text");
    options.text("--prompt,-p", prompt_, "TEXT", "answer this and leave");
    options.text("--file,-f", file_, "FILE", "answer the text of a file; - is standard input");
    options.text("--system", system_, "TEXT", "the system prompt");
    options.flag(
        "--raw", raw_,
        "no chat template: continue the text as it is; texts of control tokens are recognised");
    options.choice("--think", think_, {"on", "off"},
                   "let the model reason before it answers, where its template knows that");
    options.integer("--tokens,-n", max_tokens_, -1, INT64_MAX,
                    "tokens to generate at most; -1 = until the context is full (default)");
    options.texts("--stop", stop_, "TEXT",
                  "stop before this text; may be given several times; \\n is a newline");
    options.flag("--ignore-eos", ignore_end_, "go on after end-of-text tokens");
    options.integer("--logprobs", n_logprobs_, 0, 1000,
                    "report each token's log-probability and the N likeliest tokens");
    options.text("--save-session", save_session_, "FILE",
                 "keep the conversation and what was computed for it in a file");
    options.text("--load-session", load_session_, "FILE",
                 "go on with a saved conversation; only new text is read");
    options.flag("--force", force_, "let --save-session replace a file");
    options.flag("--warmup", warmup_, "compute one token before timing starts");
    sampling_.add(options);
    add_profile_option(options, profile_);
  }

  void check_options() override {
    sampling_.check();
    if (prompt_ && prompt_->empty() && !may_be_empty())
      throw InvalidArgument(
          "--prompt: the text is empty; --raw lets the model begin a text of its own");
    if (prompt_ && file_) throw InvalidArgument("give --prompt or --file, not both");
    if (!load_session_.empty() && !system_.empty())
      throw InvalidArgument("--system begins a conversation, --load-session goes on with one");
    if (raw_ && !system_.empty())
      throw InvalidArgument("--system needs the chat template that --raw turns off");
    if (raw_ && !think_.empty())
      throw InvalidArgument("--think needs the chat template that --raw turns off");
  }

  int run(Console& console) override {
    const bool one_answer = prompt_ || file_ || isatty(STDIN_FILENO) == 0;
    if (!one_answer && console.json())
      throw InvalidArgument("a conversation has no JSON form; give --prompt or --file");
    if (!save_session_.empty() && save_session_ != load_session_ && !force_ &&
        std::filesystem::exists(save_session_))
      throw InvalidArgument(
          fmt::format("--save-session: {} exists; --force replaces it", save_session_));
    if (!save_session_.empty() && save_session_ == profile_)
      throw InvalidArgument("--save-session and --profile name the same file");
    // Better now than after the answer.
    if (!save_session_.empty()) const AtomicFile probe(save_session_, true);
    // The text is read before the model: a missing file need not wait.
    std::string text;
    if (prompt_) {
      text = *prompt_;
    } else if (one_answer) {
      text = read_text_file(file_.value_or("-"));
      if (text.empty() && !may_be_empty())
        throw FormatError(fmt::format("{}: the text is empty", file_.value_or("standard input")));
    }

    const ProfileFile profile(profile_);
    const auto engine = model_.load(console);
    const ModelInfo& info = engine->info();
    console.note(describe_model(info));
    console.note("loaded in " + human_seconds(info.load_seconds));
    refuse_input_as_output("--save-session", save_session_);
    ChatSettings settings;
    settings.system = system_;
    settings.raw = raw_;
    settings.load_session = load_session_;
    settings.save_session = save_session_;
    settings.replace_session = force_;
    if (!system_.empty() && !info.has_chat_template)
      throw InvalidArgument(
          "--system: this model carries no chat template and so has no place for a system prompt; "
          "put it in front of the text");
    if (!think_.empty()) settings.template_values = thinking_switch(*engine, think_ == "on");
    settings.generate.max_tokens = max_tokens_;
    settings.generate.sampling = sampling_.apply(engine->recommended_sampling());
    for (const std::string& stop : stop_)
      settings.generate.stop.push_back(unescape(stop, "--stop"));
    if (n_logprobs_ > info.n_vocab)
      throw InvalidArgument(fmt::format("--logprobs: {} is more than the {} tokens of this model",
                                        n_logprobs_, info.n_vocab));
    settings.generate.n_logprobs = n_logprobs_;
    settings.generate.ignore_end = ignore_end_;
    settings.generate.cancel = &interrupt_flag();
    if (warmup_) {
      const int32_t id = 0;
      engine->new_session()->eval(std::span(&id, 1), {});
    }
    const int status = one_answer ? answer(console, engine, settings, text)
                                  : Chat(engine, settings, console).run();
    profile.write();
    return status;
  }

 private:
  /// A text can begin with nothing, and a session go on without more.
  bool may_be_empty() const { return raw_ || !load_session_.empty(); }

  /// The prompt for `text` after what the session holds; a conversation grows by it.
  static std::vector<int32_t> prompt_ids(const Engine& engine, const ChatSettings& settings,
                                         const Session& session, std::vector<ChatMessage>& messages,
                                         const std::string& text, Console& console) {
    if (settings.raw && !messages.empty())
      throw InvalidArgument(
          fmt::format("{}: the session is a conversation through a chat template; go on without "
                      "--raw",
                      settings.load_session));
    if (settings.raw) return continued(engine, session, text, true);
    if (!engine.info().has_chat_template) {
      console.note("this model carries no chat template: it continues the text");
      return continued(engine, session, text, false);
    }
    if (messages.empty() && session.position() > 0)
      throw InvalidArgument(fmt::format(
          "{}: the session is text without a template; go on with --raw", settings.load_session));
    if (!settings.system.empty()) messages.push_back({"system", settings.system});
    messages.push_back({"user", text});
    return engine.tokenize_chat(messages, true, settings.template_values);
  }

  int answer(Console& console, const std::shared_ptr<const Engine>& engine, ChatSettings& settings,
             const std::string& text) const {
    const auto session = engine->new_session();
    std::vector<ChatMessage> messages = load_session(*session, settings);
    const auto prompt = prompt_ids(*engine, settings, *session, messages, text, console);
    const Progress progress = console.progress();
    settings.generate.prompt_progress = [&](uint64_t done, uint64_t total) {
      if (progress.report) progress.report("reading", done, total);
    };
    const GenerateResult result =
        session->generate(prompt, settings.generate, [&](const GeneratedToken& token) {
          if (!console.json()) console.out(token.text);
          return true;
        });
    if (!messages.empty()) messages.push_back({"assistant", result.text});
    const GenerationStatistics statistics = statistics_of(result, engine->info());
    if (console.json()) {
      console.json_line(to_json(*engine, result, statistics));
    } else {
      if (!result.text.empty() && result.text.back() != '\n') console.out("\n");
      if (n_logprobs_ > 0) console.out(logprob_table(*engine, result));
    }
    save_session(*session, settings, engine->info().name, messages);
    console.note_format("{}; stopped: {}; seed {}", describe(statistics),
                        stop_reason_name(result.stop_reason), result.seed);
    if (result.stop_reason != StopReason::kCancelled) return kSuccess;
    console.note("interrupted");
    return kInterrupted;
  }

  static std::string piece(const Engine& engine, int32_t id) {
    // Not detokenize(): of a SentencePiece model that drops the space in front, which the token
    // has.
    return engine.tokenizer()->token_bytes(id, true);
  }

  static ordered_json to_json(const Engine& engine, const GenerateResult& result,
                              const GenerationStatistics& statistics) {
    ordered_json out = {{"text", result.text},
                        {"token_ids", result.token_ids},
                        {"stop_reason", stop_reason_name(result.stop_reason)}};
    add_to_json(statistics, out);
    out["seed"] = result.seed;
    out["isa"] = engine.info().isa;
    out["threads"] = engine.info().n_threads;
    if (result.tokens.empty()) return out;
    ordered_json tokens = ordered_json::array();
    for (const GeneratedToken& token : result.tokens) {
      ordered_json top = ordered_json::array();
      for (const TokenLogprob& other : token.top)
        top.push_back(
            {{"id", other.id}, {"piece", piece(engine, other.id)}, {"logprob", other.logprob}});
      tokens.push_back({{"id", token.id},
                        {"piece", token.text},
                        {"logprob", token.logprob},
                        {"top", std::move(top)}});
    }
    out["tokens"] = std::move(tokens);
    return out;
  }

  static std::string logprob_table(const Engine& engine, const GenerateResult& result) {
    std::vector<std::vector<std::string>> rows = {{"id", "piece", "logprob", "likeliest"}};
    for (const GeneratedToken& token : result.tokens) {
      std::string top;
      for (const TokenLogprob& other : token.top)
        top += fmt::format("{} {:.3f}  ", quote_text(piece(engine, other.id)), other.logprob);
      rows.push_back({std::to_string(token.id), quote_text(piece(engine, token.id)),
                      fmt::format("{:.4f}", token.logprob), top});
    }
    return "\n" + table(rows, {0, 2});
  }

  ModelOptions model_;
  SamplingArguments sampling_;
  std::optional<std::string> prompt_, file_;
  std::string system_, think_, profile_, save_session_, load_session_;
  std::vector<std::string> stop_;
  int64_t max_tokens_ = -1;
  int n_logprobs_ = 0;
  bool raw_ = false, ignore_end_ = false, warmup_ = false, force_ = false;
};

}  // namespace

std::unique_ptr<Command> make_run_command() {
  return std::make_unique<RunCommand>();
}

}  // namespace ts::cli
