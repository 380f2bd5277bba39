// tojson: JSON as Python's json.dumps writes it, which is what the models were trained on. Unlike
// Jinja's own filter it escapes nothing for HTML.
#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "text/jinja/interpreter.h"

namespace ts::jinja {
namespace {

void json_string(Text& out, const Text& text, bool ensure_ascii) {
  const std::string_view s = text.view();
  OriginCursor origin(text);
  std::string piece;
  out.append("\"", false);
  for (size_t p = 0; p < s.size();) {
    const size_t begin = p;
    const char32_t c = next_char(s, p);
    piece.clear();
    constexpr std::string_view kFrom = "\"\\\n\r\t\b\f", kTo = "\"\\nrtbf";
    const size_t i = c < 0x80 ? kFrom.find(static_cast<char>(c)) : std::string_view::npos;
    if (i != std::string_view::npos)
      piece = {'\\', kTo[i]};
    else if (c < 0x20 || (ensure_ascii && c >= 0x7F && c < 0x10000 && c != 0x7F))
      piece = fmt::format("\\u{:04x}", static_cast<uint32_t>(c));
    else if (ensure_ascii && c >= 0x10000)
      piece =
          fmt::format("\\u{:04x}\\u{:04x}", 0xD800 + ((static_cast<uint32_t>(c) - 0x10000) >> 10),
                      0xDC00 + ((static_cast<uint32_t>(c) - 0x10000) & 0x3FF));
    else
      piece = s.substr(begin, p - begin);
    out.append(piece, origin.untrusted(begin));
  }
  out.append("\"", false);
}

std::string json_float(double d) {
  if (std::isnan(d)) return "NaN";
  if (std::isinf(d)) return d > 0 ? "Infinity" : "-Infinity";
  return float_repr(d);
}

}  // namespace

void Interpreter::to_json(Text& out, const Value& v, const JsonStyle& style, int level) {
  const Nesting nesting(*this);
  charge(1);
  budget_.reserve(out.heap_bytes());
  const auto put = [&](std::string_view s) { out.append(s, false); };
  const auto new_line = [&](int depth) {
    if (!style.indent) return;
    put("\n");
    charge_bytes(style.indent->size() * static_cast<size_t>(depth));
    budget_.reserve(out.heap_bytes() + style.indent->size() * static_cast<size_t>(depth));
    for (int i = 0; i < depth; ++i)
      put(*style.indent);
  };
  switch (v.kind()) {
    case Kind::kNone:
      put("null");
      return;
    case Kind::kBool:
      put(v.as_int() ? "true" : "false");
      return;
    case Kind::kInt:
      put(std::to_string(v.as_int()));
      return;
    case Kind::kFloat:
      put(json_float(v.as_double()));
      return;
    case Kind::kString:
      charge_bytes(4 * v.text().size());
      json_string(out, v.text(), style.ensure_ascii);
      return;
    case Kind::kList:
    case Kind::kTuple: {
      const auto& items = v.list().items;
      if (items.empty()) return put("[]");
      put("[");
      for (size_t i = 0; i < items.size(); ++i) {
        if (i > 0) put(style.item_separator);
        new_line(level + 1);
        to_json(out, items[i], style, level + 1);
      }
      new_line(level);
      put("]");
      return;
    }
    case Kind::kDict: {
      std::vector<std::pair<Value, Value>> entries = v.dict().entries;
      charge(entries.size());
      if (entries.empty()) return put("{}");
      if (style.sort_keys)
        std::stable_sort(entries.begin(), entries.end(),
                         [&](const auto& a, const auto& b) { return less(a.first, b.first); });
      put("{");
      for (size_t i = 0; i < entries.size(); ++i) {
        const auto& [key, value] = entries[i];
        if (i > 0) put(style.item_separator);
        new_line(level + 1);
        if (key.is(Kind::kString)) {
          json_string(out, key.text(), style.ensure_ascii);
        } else {
          put("\"");
          to_json(out, key, style, level + 1);
          put("\"");
        }
        put(style.key_separator);
        to_json(out, value, style, level + 1);
      }
      new_line(level);
      put("}");
      return;
    }
    default:
      require_defined(v);
      fail(fmt::format("a {} cannot be written as JSON", type_name(v)));
  }
}

}  // namespace ts::jinja
