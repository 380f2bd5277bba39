#include "cli/machine.h"

#include <fstream>

#include <fmt/format.h>
#include <sys/utsname.h>

namespace ts::cli {

std::optional<std::string> read_line_of(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  if (!std::getline(file, line)) return std::nullopt;
  line.erase(line.find_last_not_of(" \t\r\n") + 1);
  return line;
}

std::string transparent_huge_pages() {
  // The chosen word stands in brackets: "always [madvise] never".
  const std::string line = read_line_of("/sys/kernel/mm/transparent_hugepage/enabled").value_or("");
  const size_t open = line.find('['), close = line.find(']');
  if (open == std::string::npos || close == std::string::npos || close < open) return "unknown";
  return line.substr(open + 1, close - open - 1);
}

std::string cpu_governor() {
  return read_line_of("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor").value_or("unknown");
}

std::string kernel_version() {
  utsname names = {};
  if (uname(&names) != 0) return "unknown";
  return fmt::format("{} {} {}", names.sysname, names.release, names.machine);
}

}  // namespace ts::cli
