// A template, a zero byte, and (optional) the JSON object of its variables.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include <tensorsharp/error.hpp>

#include "base/quote_text.h"
#include "text/chat_template.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using Json = nlohmann::ordered_json;
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t zero = input.find('\0');
  Json variables = Json::object();
  if (zero != std::string_view::npos) {
    Json parsed = Json::parse(input.substr(zero + 1), nullptr, false);
    if (parsed.is_object()) variables = std::move(parsed);
  } else {
    variables = {
        {"messages", {{{"role", "user"}, {"content", " é<x> "}}}}, {"n", 3}, {"l", {1, 2}}};
  }
  // Small enough for a sanitised build to finish each input in a fraction of a second.
  ts::TemplateLimits limits;
  limits.max_steps = 200'000;
  limits.max_output_bytes = 1 << 20;
  limits.max_value_bytes = 4 << 20;
  limits.max_depth = 100;
  try {
    const auto parsed = ts::ChatTemplate::parse(std::string(input.substr(0, zero)), limits);
    const ts::RenderedPrompt prompt = parsed->render_raw(variables);
    // What comes out is UTF-8, and the ranges are sorted, disjoint and inside.
    if (ts::find_invalid_utf8(prompt.text) != std::string_view::npos) std::abort();
    size_t at = 0;
    for (const ts::ByteRange& r : prompt.untrusted) {
      if (r.begin < at || r.end <= r.begin || r.end > prompt.text.size()) std::abort();
      at = r.end;
    }
  } catch (const ts::InternalError&) {
    std::abort();
  } catch (const ts::Error&) {
  }
  return 0;
}
