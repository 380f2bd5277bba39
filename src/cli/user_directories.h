/// Where a user's files of this program live (XDG Base Directory Specification).
#pragma once

#include <filesystem>

namespace ts::cli {

/// $XDG_CACHE_HOME/tensorsharp, else ~/.cache/tensorsharp; empty when there is no home.
std::filesystem::path cache_directory();
/// $XDG_STATE_HOME/tensorsharp, else ~/.local/state/tensorsharp; empty when there is no home.
std::filesystem::path state_directory();

}  // namespace ts::cli
