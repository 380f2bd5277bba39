/// Reads lines from a terminal with editing and a history kept between runs (libedit).
#pragma once

#include <filesystem>
#include <memory>
#include <string>

namespace ts::cli {

/// kCleared: an interrupt threw away a line that had been begun.
enum class LineStatus { kLine, kEnd, kInterrupted, kCleared };

class LineEditor {
 public:
  /// `history_file`: empty = no history is kept. A file that cannot be read or written is no error.
  explicit LineEditor(const std::filesystem::path& history_file);
  LineEditor(const LineEditor&) = delete;
  LineEditor& operator=(const LineEditor&) = delete;
  ~LineEditor();

  /// One line without its newline. A line that ends in a backslash goes on with the next.
  LineStatus read(const std::string& prompt, std::string& line);

  /// For the editor library's callback: something was typed. `edit` is its handle.
  static void note_typing(void* edit);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ts::cli
