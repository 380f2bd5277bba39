#include "cli/input_text.h"

#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <tensorsharp/error.hpp>

#include "cli/interrupt.h"

namespace ts::cli {
namespace {

std::string read_all(int fd, const std::string& name, size_t max_bytes) {
  std::string text;
  char buffer[1 << 16];
  while (true) {
    interrupt_token().check();
    const ssize_t n = ::read(fd, buffer, sizeof(buffer));
    if (n == 0) return text;
    if (n < 0) {
      if (errno == EINTR) continue;
      throw IoError(fmt::format("{}: cannot read: {}", name, strerror(errno)));
    }
    text.append(buffer, static_cast<size_t>(n));
    if (text.size() > max_bytes)
      throw ResourceExhausted(fmt::format("{}: more than {} bytes of text", name, max_bytes));
  }
}

}  // namespace

std::string read_standard_input() {
  return read_all(STDIN_FILENO, "standard input", kMaxTextBytes);
}

std::string read_text_file(const std::string& path, size_t max_bytes) {
  if (path == "-") return read_standard_input();
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) throw IoError(fmt::format("{}: cannot open: {}", path, strerror(errno)));
  struct Close {
    int fd;
    ~Close() { ::close(fd); }
  } close_it{fd};
  return read_all(fd, path, max_bytes);
}

}  // namespace ts::cli
