/// The interactive conversation of `run`.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <tensorsharp/engine.hpp>

#include "cli/console.h"
#include "cli/generation_statistics.h"

namespace ts::cli {

struct ChatSettings {
  GenerateOptions generate;
  std::string system;            ///< system prompt; empty = none
  std::string template_values;   ///< JSON object of template variables, or empty
  bool raw = false;              ///< text goes on without a template
  std::string load_session;      ///< go on with this saved session; empty = begin anew
  std::string save_session;      ///< save the session here at the end; empty = do not
  bool replace_session = false;  ///< save_session may exist
};

/// A saved conversation: {"format": "tensorsharp.chat", "version": 1, "model", "messages"}.
std::string chat_to_json(const std::string& model, const std::vector<ChatMessage>& messages);
/// FormatError naming `source` when it is not such a text.
std::vector<ChatMessage> chat_from_json(std::string_view json, const std::string& source);

/// Loads the session that `settings` names, if any, and returns its conversation (empty when it was
/// text without a template).
std::vector<ChatMessage> load_session(Session& session, const ChatSettings& settings);
/// Saves the session where `settings` says, if anywhere, with the conversation.
void save_session(const Session& session, const ChatSettings& settings, const std::string& model,
                  const std::vector<ChatMessage>& messages);
/// The tokens of a session and those of `text`, which goes on without a template.
std::vector<int32_t> continued(const Engine& engine, const Session& session,
                               const std::string& text, bool parse_special);

/// The JSON object that switches a template's thinking; InvalidArgument when the model's template
/// has no such switch.
std::string thinking_switch(const Engine& engine, bool on);

class Chat {
 public:
  Chat(std::shared_ptr<const Engine> engine, ChatSettings settings, Console& console);

  /// Reads lines until the end of input or /quit. Returns the exit status.
  int run();

 private:
  int converse();
  enum class Next { kGoOn, kQuit };
  Next command(std::string_view line);
  void answer(const std::string& text);
  std::vector<int32_t> prompt_for(const std::string& text);
  void set(std::string_view arguments);
  void save(const std::string& path);
  void load(const std::string& path);
  void reset();
  void show_statistics();

  std::shared_ptr<const Engine> engine_;
  ChatSettings settings_;
  Console& console_;
  std::unique_ptr<Session> session_;
  std::vector<ChatMessage> messages_;
  GenerationStatistics last_;
  bool answered_ = false;
  std::string own_file_;  ///< saved or loaded here, so that saving again may replace it
};

}  // namespace ts::cli
