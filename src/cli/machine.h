/// Facts about the machine for `ts-cli info`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace ts::cli {

/// Contents of a small file without the blanks at its end; nothing when it cannot be read.
std::optional<std::string> read_line_of(const std::string& path);
/// "madvise", "always", "never", or "unknown".
std::string transparent_huge_pages();
/// Frequency governor of CPU 0, or "unknown" (containers and virtual machines often hide it).
std::string cpu_governor();
/// Name and version of the operating system's kernel.
std::string kernel_version();

}  // namespace ts::cli
