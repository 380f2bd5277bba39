#include <tensorsharp/version.hpp>

#define TS_STRINGIFY_(x) #x
#define TS_STRINGIFY(x) TS_STRINGIFY_(x)

namespace ts {

std::string_view version() noexcept {
  return TS_STRINGIFY(TENSORSHARP_VERSION_MAJOR) "." TS_STRINGIFY(
      TENSORSHARP_VERSION_MINOR) "." TS_STRINGIFY(TENSORSHARP_VERSION_PATCH);
}

}  // namespace ts
