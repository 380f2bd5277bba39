/// Texts the commands read: files and standard input.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>

namespace ts::cli {

constexpr size_t kMaxTextBytes = size_t{1} << 30;

/// Everything until the end. Cancelled after an interrupt; IoError, or ResourceExhausted beyond
/// kMaxTextBytes.
std::string read_standard_input();
/// A whole file; "-" is standard input.
std::string read_text_file(const std::string& path, size_t max_bytes = kMaxTextBytes);

}  // namespace ts::cli
