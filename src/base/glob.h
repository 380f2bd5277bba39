/// Patterns over names.
#pragma once

#include <string_view>

namespace ts {

/// Shell-style match of a whole name: * any run, ? one character.
bool glob_match(std::string_view pattern, std::string_view name) noexcept;

}  // namespace ts
