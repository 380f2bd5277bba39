#include "cli/chat.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <tensorsharp/error.hpp>

#include "base/atomic_file.h"
#include "base/json.h"
#include "base/quote_text.h"
#include "cli/command.h"
#include "cli/input_text.h"
#include "cli/interrupt.h"
#include "cli/line_editor.h"
#include "cli/parse_values.h"
#include "cli/sampling_options.h"
#include "cli/text_output.h"
#include "cli/user_directories.h"
#include "text/chat_template.h"

namespace ts::cli {
namespace {

constexpr std::string_view kFormat = "tensorsharp.chat";
constexpr size_t kMaxChatBytes = size_t{64} << 20;
constexpr std::string_view kBlanks = " \t\r\n";

constexpr std::string_view kHelp =
    "/help               this list\n"
    "/reset              forget the conversation (the system prompt stays)\n"
    "/save FILE          write the conversation as JSON\n"
    "/load FILE          go on with a saved conversation\n"
    "/set                show the settings\n"
    "/set NAME VALUE     temp, top_k, top_p, min_p, typical_p, repeat_penalty,\n"
    "                    presence_penalty, frequency_penalty, penalty_window, samplers,\n"
    "                    seed, n (most tokens of an answer), system, think on|off\n"
    "/stats              speed and memory of the last answer, use of the context\n"
    "/quit               leave (also Ctrl-D)\n"
    "Ctrl-C stops an answer. A line that ends in \\ goes on with the next.";

std::string_view trim(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of(kBlanks), text.size()));
  return text.substr(0, text.find_last_not_of(kBlanks) + 1);
}

/// Splits off the first word.
std::pair<std::string_view, std::string_view> split_word(std::string_view text) {
  text = trim(text);
  const size_t end = std::min(text.find_first_of(kBlanks), text.size());
  return {text.substr(0, end), trim(text.substr(end))};
}

}  // namespace

std::string chat_to_json(const std::string& model, const std::vector<ChatMessage>& messages) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const ChatMessage& message : messages)
    list.push_back({{"role", message.role}, {"content", message.content}});
  const nlohmann::ordered_json root = {
      {"format", kFormat}, {"version", 1}, {"model", model}, {"messages", std::move(list)}};
  return root.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

std::vector<ChatMessage> chat_from_json(std::string_view json, const std::string& source) {
  const nlohmann::json root = parse_json_limited(json, source);
  const auto fail = [&](const std::string& what) {
    throw FormatError(fmt::format("{}: not a saved conversation: {}", source, what));
  };
  if (!root.is_object() || !root.contains("format") || root["format"] != kFormat)
    fail(fmt::format("\"format\" is not \"{}\"", kFormat));
  if (!root.contains("version") || root["version"] != 1)
    fail("\"version\" is not 1; it may be of a later version of this program");
  if (!root.contains("messages") || !root["messages"].is_array())
    fail("\"messages\" is not a list");
  std::vector<ChatMessage> messages;
  for (const auto& entry : root["messages"]) {
    if (!entry.is_object() || !entry.contains("role") || !entry["role"].is_string() ||
        !entry.contains("content") || !entry["content"].is_string())
      fail(fmt::format("message {} has no text \"role\" and \"content\"", messages.size()));
    messages.push_back({entry["role"].get<std::string>(), entry["content"].get<std::string>()});
  }
  return messages;
}

std::vector<ChatMessage> load_session(Session& session, const ChatSettings& settings) {
  if (settings.load_session.empty()) return {};
  const std::string note = session.load(settings.load_session);
  return note.empty() ? std::vector<ChatMessage>{} : chat_from_json(note, settings.load_session);
}

void save_session(const Session& session, const ChatSettings& settings, const std::string& model,
                  const std::vector<ChatMessage>& messages) {
  if (settings.save_session.empty()) return;
  session.save(settings.save_session,
               settings.replace_session || settings.save_session == settings.load_session,
               messages.empty() ? std::string() : chat_to_json(model, messages));
}

std::vector<int32_t> continued(const Engine& engine, const Session& session,
                               const std::string& text, bool parse_special) {
  const auto held = session.tokens();
  std::vector<int32_t> ids(held.begin(), held.end());
  const auto more = engine.tokenize(text, ids.empty(), parse_special);
  ids.insert(ids.end(), more.begin(), more.end());
  return ids;
}

std::string thinking_switch(const Engine& engine, bool on) {
  const auto chat_template = engine.chat_template();
  if (chat_template == nullptr ||
      chat_template->source().find("enable_thinking") == std::string::npos)
    throw InvalidArgument("think: the chat template of this model has no such switch");
  return on ? R"({"enable_thinking": true})" : R"({"enable_thinking": false})";
}

Chat::Chat(std::shared_ptr<const Engine> engine, ChatSettings settings, Console& console)
    : engine_(std::move(engine)),
      settings_(std::move(settings)),
      console_(console),
      session_(engine_->new_session()) {
  settings_.generate.cancel = &interrupt_flag();
  if (!settings_.raw && engine_->chat_template() == nullptr) {
    settings_.raw = true;
    console_.note("this model carries no chat template: it continues the text so far");
  }
  reset();
  if (settings_.load_session.empty()) return;
  messages_ = load_session(*session_, settings_);
  console_.note_format("going on after {} tokens of {}", session_->position(),
                       settings_.load_session);
}

int Chat::run() {
  const int status = converse();
  // After an interrupt too: what was said is not lost.
  save_session(*session_, settings_, engine_->info().name, messages_);
  return status;
}

int Chat::converse() {
  const auto directory = state_directory();
  LineEditor editor(directory.empty() ? directory : directory / "chat_history");
  console_.note("/help lists the commands, Ctrl-D leaves");
  bool interrupted = false;
  while (true) {
    std::string line;
    const LineStatus status = editor.read("> ", line);
    if (status == LineStatus::kEnd) {
      console_.note("");
      return kSuccess;
    }
    if (termination_requested()) return kInterrupted;
    if (status == LineStatus::kCleared) {
      rearm_interrupt();
      console_.note("");
      interrupted = false;
      continue;
    }
    if (status == LineStatus::kInterrupted) {
      console_.note("");
      if (interrupted) return kInterrupted;
      interrupted = true;
      rearm_interrupt();  // before it is offered
      console_.note("Ctrl-C again or Ctrl-D to leave");
      continue;
    }
    interrupted = false;
    if (trim(line).empty()) continue;
    try {
      if (line.front() == '/') {
        if (command(line) == Next::kQuit) return kSuccess;
      } else {
        answer(line);
      }
    } catch (const Error& error) {
      // The conversation goes on; a defect or lost memory does not pass for a bad request.
      if (error.code() == ErrorCode::kInternal) throw;
      report_error("tensorsharp", error.what());
    }
    if (termination_requested()) return kInterrupted;
    if (interrupt_flag().load()) rearm_interrupt();
  }
}

Chat::Next Chat::command(std::string_view line) {
  const auto [name, rest] = split_word(line);
  if (name == "/quit" || name == "/exit" || name == "/bye") return Next::kQuit;
  if (name == "/help") {
    console_.note(kHelp);
  } else if (name == "/reset") {
    reset();
  } else if (name == "/save") {
    save(std::string(rest));
  } else if (name == "/load") {
    load(std::string(rest));
  } else if (name == "/set") {
    set(rest);
  } else if (name == "/stats") {
    show_statistics();
  } else {
    throw InvalidArgument(fmt::format("{} is not a command; /help lists them", quote_text(name)));
  }
  return Next::kGoOn;
}

std::vector<int32_t> Chat::prompt_for(const std::string& text) {
  if (!settings_.raw) {
    std::vector<ChatMessage> messages = messages_;
    messages.push_back({"user", text});
    return engine_->tokenize_chat(messages, true, settings_.template_values);
  }
  return continued(*engine_, *session_, text, true);
}

void Chat::answer(const std::string& text) {
  const std::vector<int32_t> prompt = prompt_for(text);
  if (static_cast<int64_t>(prompt.size()) > engine_->info().context)
    throw ResourceExhausted(
        fmt::format("with this the conversation has {} tokens, the context holds {}; /reset starts "
                    "anew, --ctx N gives more room",
                    prompt.size(), engine_->info().context));
  const Progress progress = console_.progress();
  settings_.generate.prompt_progress = [&](uint64_t done, uint64_t total) {
    if (progress.report) progress.report("reading", done, total);
  };
  const GenerateResult result =
      session_->generate(prompt, settings_.generate, [&](const GeneratedToken& token) {
        console_.out(token.text);
        return true;
      });
  settings_.generate.prompt_progress = nullptr;
  console_.out("\n");
  messages_.push_back({"user", text});
  messages_.push_back({"assistant", result.text});
  last_ = statistics_of(result, engine_->info());
  answered_ = true;
  if (result.stop_reason == StopReason::kContextFull)
    console_.warn(
        fmt::format("the context of {} tokens is full; /reset starts anew, --ctx N gives "
                    "more room",
                    engine_->info().context));
  if (console_.verbose()) console_.note(describe(last_));
}

void Chat::set(std::string_view arguments) {
  const auto [name, value] = split_word(arguments);
  GenerateOptions options = settings_.generate;
  if (name.empty()) {
    console_.note(describe_sampling(options.sampling));
    console_.note_format("n {}, system {}",
                         options.max_tokens < 0 ? "unlimited" : std::to_string(options.max_tokens),
                         settings_.system.empty() ? "none" : quote_text(settings_.system));
    return;
  }
  if (name == "n") {
    const auto number = parse_integer(value, -1, INT64_MAX);
    if (!number)
      throw InvalidArgument(fmt::format("n: {} is not a whole number", quote_text(value)));
    options.max_tokens = *number;
  } else if (name == "system") {
    if (settings_.raw)
      throw InvalidArgument("system: without a chat template there is no place for it");
    settings_.system = value;
    reset();
  } else if (name == "think") {
    if (value != "on" && value != "off")
      throw InvalidArgument(fmt::format("think: {} is neither on nor off", quote_text(value)));
    settings_.template_values = thinking_switch(*engine_, value == "on");
  } else if (!set_sampling_option(options.sampling, name, value)) {
    throw InvalidArgument(fmt::format("{} is not a setting; /set shows them", quote_text(name)));
  }
  check_sampling(options.sampling, engine_->info().n_vocab);
  settings_.generate = options;
}

void Chat::save(const std::string& path) {
  if (path.empty()) throw InvalidArgument("/save needs a file name");
  std::error_code ignored;
  if (path != own_file_ && std::filesystem::exists(path, ignored))
    throw InvalidArgument(fmt::format("/save: {} exists already; name another file", path));
  AtomicFile file(path, path == own_file_);
  const std::string text = chat_to_json(engine_->info().name, messages_);
  file.write(std::as_bytes(std::span(text.data(), text.size())));
  file.commit();
  own_file_ = path;
  console_.note_format("saved {} messages to {}", messages_.size(), path);
}

void Chat::load(const std::string& path) {
  if (path.empty()) throw InvalidArgument("/load needs a file name");
  messages_ = chat_from_json(read_text_file(path, kMaxChatBytes), path);
  session_->reset();
  own_file_ = path;
  console_.note_format("loaded {} messages from {}", messages_.size(), path);
}

void Chat::reset() {
  messages_.clear();
  session_->reset();
  if (!settings_.system.empty()) messages_.push_back({"system", settings_.system});
}

void Chat::show_statistics() {
  if (answered_) console_.note(describe(last_));
  console_.note_format("context: {} of {} tokens used", session_->position(),
                       engine_->info().context);
}

}  // namespace ts::cli
