/// Texts the commands read: files and standard input.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace ts::cli {

/// Everything until the end. Cancelled after an interrupt; IoError, or ResourceExhausted beyond
/// 1 GiB.
std::string read_standard_input();
/// A whole file; "-" is standard input.
std::string read_text_file(const std::string& path);

}  // namespace ts::cli
