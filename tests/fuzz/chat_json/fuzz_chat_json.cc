// A chat request as JSON text, rendered through templates of different needs.
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>

#include <tensorsharp/error.hpp>

#include "base/quote_text.h"
#include "text/jinja/chat_json.h"

namespace {

std::array<std::shared_ptr<const ts::ChatTemplate>, 3> templates() {
  ts::TemplateLimits limits;
  limits.max_steps = 200'000;
  limits.max_output_bytes = 4 << 20;
  return {
      ts::ChatTemplate::parse(
          "{% for m in messages %}{% if m.role == 'system' and not loop.first %}"
          "{{ raise_exception('system first') }}{% endif %}<{{ m.role }}>{{ m.content + '' }}"
          "{% for c in m.tool_calls %}{% for k, v in c.function.arguments|items %}"
          "{{ k ~ '=' ~ v|tojson }}{% endfor %}{% endfor %}{% endfor %}{{ tools|tojson if tools }}",
          limits),
      ts::ChatTemplate::parse(
          "{% for m in messages %}{% if m.content is none %}-{% endif %}"
          "{% for content in m.content %}{{ content.text | trim }}{% endfor %}"
          "{% for c in m.tool_calls %}{{ '' + c.arguments }}{% endfor %}{% endfor %}",
          limits),
      ts::ChatTemplate::parse("{{ messages }}{{ tools }}{{ messages[0].content[1:] }}", limits)};
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const auto all = templates();
  ts::ChatJsonLimits limits;
  limits.max_bytes = 1 << 20;
  ts::ChatRequest request;
  try {
    request = ts::parse_chat_json({reinterpret_cast<const char*>(data), size}, limits);
  } catch (const ts::InternalError&) {
    std::abort();
  } catch (const ts::Error&) {
    return 0;
  }
  for (const auto& t : all) {
    try {
      if (ts::find_invalid_utf8(t->render(request).text) != std::string_view::npos) std::abort();
    } catch (const ts::InternalError&) {
      std::abort();
    } catch (const ts::Error&) {
    }
  }
  return 0;
}
