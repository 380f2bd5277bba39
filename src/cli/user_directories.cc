#include "cli/user_directories.h"

#include <cstdlib>

namespace ts::cli {
namespace {

std::filesystem::path directory(const char* variable, const char* under_home) {
  // The specification says to ignore relative paths.
  if (const char* value = std::getenv(variable); value != nullptr && *value == '/')
    return std::filesystem::path(value) / "tensorsharp";
  if (const char* home = std::getenv("HOME"); home != nullptr && *home == '/')
    return std::filesystem::path(home) / under_home / "tensorsharp";
  return {};
}

}  // namespace

std::filesystem::path cache_directory() {
  return directory("XDG_CACHE_HOME", ".cache");
}

std::filesystem::path state_directory() {
  return directory("XDG_STATE_HOME", ".local/state");
}

}  // namespace ts::cli
