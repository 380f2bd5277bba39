#include "cli/line_editor.h"

#include <cerrno>
#include <clocale>
#include <cstdio>
#include <cwchar>
#include <system_error>

#include <histedit.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <tensorsharp/error.hpp>

#include "cli/interrupt.h"

namespace ts::cli {
namespace {

constexpr int kHistoryLines = 1000;
constexpr wchar_t kEndOfTransmission = 4;  // Ctrl-D

/// Waits for a byte or an interrupt, wherever and whenever the signal came. 1 = a byte, 0 = end of
/// input, -1 = interrupt or error.
int read_byte(char& byte) {
  while (true) {
    pollfd wait[2] = {{STDIN_FILENO, POLLIN, 0}, {interrupt_event(), POLLIN, 0}};
    const int ready = poll(wait, 2, -1);
    if (interrupt_flag().load()) return -1;
    if (ready < 0 && errno != EINTR) return -1;
    if (ready <= 0 || wait[0].revents == 0) continue;
    const ssize_t count = ::read(STDIN_FILENO, &byte, 1);
    if (count >= 0) return count > 0 ? 1 : 0;
    if (errno != EINTR && errno != EAGAIN) return -1;
  }
}

/// Reads one character for the editor; bytes that are no UTF-8 become U+FFFD.
int read_character(EditLine* edit, wchar_t* out) {
  std::mbstate_t state = {};
  while (true) {
    char byte = 0;
    const int got = read_byte(byte);
    if (got <= 0) return got;
    const size_t used = std::mbrtowc(out, &byte, 1, &state);
    if (used == static_cast<size_t>(-2)) continue;
    if (used == static_cast<size_t>(-1)) *out = L'\uFFFD';
    LineEditor::note_typing(edit);
    // A Ctrl-D typed before the editor had the terminal (during an answer) arrives as a zero.
    if (used == 0) *out = kEndOfTransmission;
    return 1;
  }
}

}  // namespace

struct LineEditor::State {
  EditLine* edit = nullptr;
  History* history = nullptr;
  std::filesystem::path history_file;
  std::string prompt;
  bool typed = false;  ///< something since the prompt

  static char* prompt_of(EditLine* edit) {
    void* data = nullptr;
    el_get(edit, EL_CLIENTDATA, &data);
    return static_cast<State*>(data)->prompt.data();
  }
};

void LineEditor::note_typing(void* edit) {
  void* data = nullptr;
  el_get(static_cast<EditLine*>(edit), EL_CLIENTDATA, &data);
  static_cast<State*>(data)->typed = true;
}

LineEditor::LineEditor(const std::filesystem::path& history_file)
    : state_(std::make_unique<State>()) {
  // Editing needs to know where characters begin; without a UTF-8 locale take the C library's own.
  if (std::setlocale(LC_CTYPE, "") == nullptr || MB_CUR_MAX == 1)
    std::setlocale(LC_CTYPE, "C.UTF-8");
  state_->history_file = history_file;
  // The prompt is no result: it goes to standard error.
  state_->edit = el_init("tensorsharp", stdin, stderr, stderr);
  state_->history = history_init();
  if (state_->edit == nullptr || state_->history == nullptr)
    throw ResourceExhausted("the line editor could not be started: out of memory");
  HistEvent event;
  history(state_->history, &event, H_SETSIZE, kHistoryLines);
  history(state_->history, &event, H_SETUNIQUE, 1);
  if (!history_file.empty()) history(state_->history, &event, H_LOAD, history_file.c_str());
  el_set(state_->edit, EL_CLIENTDATA, state_.get());
  el_set(state_->edit, EL_PROMPT, &State::prompt_of);
  el_set(state_->edit, EL_EDITOR, "emacs");
  el_set(state_->edit, EL_HIST, history, state_->history);
  el_set(state_->edit, EL_GETCFN, &read_character);
  el_set(state_->edit, EL_BIND, "^R", "em-inc-search-prev", nullptr);
  el_source(state_->edit, nullptr);  // the user's ~/.editrc
}

LineEditor::~LineEditor() {
  if (!state_->history_file.empty()) {
    std::error_code ignored;
    std::filesystem::create_directories(state_->history_file.parent_path(), ignored);
    HistEvent event;
    // What was said stays private to the user.
    const mode_t before = umask(0077);
    history(state_->history, &event, H_SAVE, state_->history_file.c_str());
    umask(before);
  }
  history_end(state_->history);
  el_end(state_->edit);
}

LineStatus LineEditor::read(const std::string& prompt, std::string& line) {
  line.clear();
  state_->prompt = prompt;
  state_->typed = false;
  while (true) {
    int count = 0;
    errno = 0;
    // Take the terminal before the prompt is seen: what is typed from then on is the editor's.
    el_set(state_->edit, EL_PREP_TERM, 1);
    const char* text = el_gets(state_->edit, &count);
    if (interrupt_flag().load()) {
      el_reset(state_->edit);
      return state_->typed ? LineStatus::kCleared : LineStatus::kInterrupted;
    }
    if (text == nullptr || count <= 0) return line.empty() ? LineStatus::kEnd : LineStatus::kLine;
    line.append(text, static_cast<size_t>(count));
    const bool complete = !line.empty() && line.back() == '\n';
    if (complete) line.pop_back();
    if (complete && !line.empty() && line.back() == '\\') {
      line.back() = '\n';
      state_->prompt = std::string(prompt.size() > 2 ? prompt.size() - 2 : 0, '.') + "  ";
      continue;
    }
    break;
  }
  if (line.find_first_not_of(" \t\n") != std::string::npos) {
    HistEvent event;
    history(state_->history, &event, H_ENTER, (line + "\n").c_str());
  }
  return LineStatus::kLine;
}

}  // namespace ts::cli
