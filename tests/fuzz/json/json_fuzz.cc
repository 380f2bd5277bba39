// Any text given as JSON is either refused with a ts::Error or gives a value that survives being
// written and parsed again.

#include <cstdint>
#include <cstdlib>
#include <string_view>

#include <nlohmann/json.hpp>

#include <tensorsharp/error.hpp>

#include "base/json.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    const nlohmann::json value = ts::parse_json_limited(text, "input");
    if (ts::parse_json_limited(value.dump(), "output") != value) std::abort();
  } catch (const ts::Error&) {
  }
  return 0;
}
