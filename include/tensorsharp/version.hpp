/// Version of the library and of the formats it writes (semantic versioning; see CHANGELOG.md).
#pragma once

#include <string_view>

#include <tensorsharp/export.hpp>

#define TENSORSHARP_VERSION_MAJOR 0
#define TENSORSHARP_VERSION_MINOR 1
#define TENSORSHARP_VERSION_PATCH 0

namespace ts {

/// Version of the library that is linked, e.g. "0.1.0".
TS_API std::string_view version() noexcept;

}  // namespace ts
