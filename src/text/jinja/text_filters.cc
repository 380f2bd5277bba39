// Filters that make texts.
#include <algorithm>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "base/quote_text.h"
#include "text/jinja/filters.h"
#include "text/jinja/string_operations.h"

namespace ts::jinja {
namespace {

using In = Interpreter&;

template <CaseMap kMap>
Value case_filter(In in, const Value& v, Arguments& args) {
  bind(in, "filter", args, {});
  return in.string(map_case(in, in.to_text(v), kMap));
}

Value trim_filter(In in, const Value& v, Arguments& args) {
  const auto a = bind(in, "trim", args, {"chars"});
  const Text* set = a[0] && !a[0]->is(Kind::kNone) ? &text_argument(in, *a[0], "chars") : nullptr;
  return in.string(strip(in, in.to_text(v), set, true, true));
}

Value string_filter(In in, const Value& v, Arguments& args) {
  bind(in, "string", args, {});
  return v.is(Kind::kString) ? v : in.string(in.to_text(v));
}

Value safe_filter(In in, const Value& v, Arguments& args) {
  bind(in, "safe", args, {});
  return v.is(Kind::kString) ? v : in.string(in.to_text(v));
}

Value replace_filter(In in, const Value& v, Arguments& args) {
  const auto a = bind(in, "replace", args, {"old", "new", "count"}, 2);
  const int64_t count = a[2] && !a[2]->is(Kind::kNone) ? int_argument(in, a[2], -1, "count") : -1;
  return in.string(replace(in, in.to_text(v), in.to_text(*a[0]), in.to_text(*a[1]), count));
}

Value join_filter(In in, const Value& v, Arguments& args) {
  const auto a = bind(in, "join", args, {"d", "attribute"});
  std::vector<Value> items = in.iterate(v);
  if (a[1] && !a[1]->is(Kind::kNone))
    for (Value& item : items)
      item = dotted(in, item, *a[1]);
  return in.string(join(in, a[0] ? in.to_text(*a[0]) : Text(), items));
}

Value indent_filter(In in, const Value& v, Arguments& args) {
  const auto a = bind(in, "indent", args, {"width", "first", "blank"});
  Text indentation;
  if (a[0] && a[0]->is(Kind::kString)) {
    indentation = a[0]->text();
  } else {
    const int64_t width = std::max<int64_t>(int_argument(in, a[0], 4, "width"), 0);
    indentation = pad(in, Text(), width, '<', " ");
  }
  return in.string(
      indent(in, in.to_text(v), indentation, flag(in, a[1], false), flag(in, a[2], false)));
}

Value center_filter(In in, const Value& v, Arguments& args) {
  const auto a = bind(in, "center", args, {"width"});
  return in.string(pad(in, in.to_text(v), int_argument(in, a[0], 80, "width"), '^', " "));
}

Value format_filter(In in, const Value& v, Arguments& args) {
  if (!args.named.empty() && !args.positional.empty())
    in.fail("format: positional and named arguments cannot be mixed");
  Value values;
  if (args.named.empty()) {
    values = in.tuple(args.positional);
  } else {
    auto dict = std::make_shared<Dict>(in.budget());
    for (auto& [name, value] : args.named)
      dict->set(in.string(name), value);
    values = Value::object(Kind::kDict, std::move(dict));
  }
  return in.string(percent_format(in, in.to_text(v), values));
}

Value truncate_filter(In in, const Value& v, Arguments& args) {
  const auto a = bind(in, "truncate", args, {"length", "killwords", "end", "leeway"});
  const Text text = in.to_text(v);
  Text end;
  if (a[2])
    end = in.to_text(*a[2]);
  else
    end.append("...", false);
  const int64_t length = int_argument(in, a[0], 255, "length");
  const int64_t leeway = a[3] && !a[3]->is(Kind::kNone) ? int_argument(in, a[3], 5, "leeway") : 5;
  const auto end_size = static_cast<int64_t>(count_chars(end.view()));
  in.charge_bytes(2 * text.size());
  if (length < end_size) in.fail("truncate: the length is less than that of the end");
  if (leeway < 0) in.fail("truncate: the leeway is negative");
  const auto size = static_cast<int64_t>(count_chars(text.view()));
  if (size <= length || size - length <= leeway) return in.string(text);
  size_t kept = char_offset(text.view(), static_cast<size_t>(length - end_size));
  if (!flag(in, a[1], false)) {
    const size_t space = text.view().substr(0, kept).rfind(' ');
    if (space != std::string_view::npos) kept = space;
  }
  Text out = text.substr(0, kept);
  out.append(end);
  return in.string(std::move(out));
}

Value escape_filter(In in, const Value& v, Arguments& args) {
  bind(in, "escape", args, {});
  Text text = in.to_text(v);
  for (const auto& [from, to] :
       {std::pair{"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}, {"'", "&#39;"}, {"\"", "&#34;"}})
    text = replace(in, text, Text(from), Text(to), -1);
  return in.string(std::move(text));
}

/// `query`: the form of query strings, "/" quoted and "+" for a space.
Text url_quoted(In in, const Text& text, bool query) {
  in.charge_bytes(4 * text.size());
  in.budget().reserve(3 * text.heap_bytes());
  OriginCursor origin(text);
  Text out;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text.view()[i];
    const bool keep = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                      std::string_view("_.-~").find(c) != std::string_view::npos ||
                      (c == '/' && !query);
    char piece[4] = {c, 0, 0, 0};
    if (!keep && c == ' ' && query) {
      piece[0] = '+';
    } else if (!keep) {
      constexpr std::string_view kHex = "0123456789ABCDEF";
      const unsigned byte = static_cast<unsigned char>(c);
      piece[0] = '%';
      piece[1] = kHex[byte >> 4];
      piece[2] = kHex[byte & 15];
    }
    out.append(std::string_view(piece), origin.untrusted(i));
  }
  return out;
}

Value urlencode_filter(In in, const Value& v, Arguments& args) {
  bind(in, "urlencode", args, {});
  if (!v.is(Kind::kDict)) return in.string(url_quoted(in, in.to_text(v), false));
  Text out;
  for (const auto& [key, value] : v.dict().entries) {
    if (!out.empty()) out.append("&", false);
    out.append(url_quoted(in, in.to_text(key), true));
    out.append("=", false);
    out.append(url_quoted(in, in.to_text(value), true));
    in.budget().reserve(out.heap_bytes());
  }
  return in.string(std::move(out));
}

Value wordcount_filter(In in, const Value& v, Arguments& args) {
  bind(in, "wordcount", args, {});
  const Text text = in.to_text(v);
  in.charge_bytes(4 * text.size());
  int64_t n = 0;
  bool inside = false;
  for (size_t p = 0; p < text.size();) {
    const char32_t c = next_char(text.view(), p);
    const bool word = c == '_' || is_alphabetic(c) || is_decimal_digit(c);
    n += word && !inside;
    inside = word;
  }
  return Value::integer(n);
}

Value tojson_filter(In in, const Value& v, Arguments& args) {
  const auto a = bind(in, "tojson", args, {"ensure_ascii", "indent", "separators", "sort_keys"});
  Interpreter::JsonStyle style;
  style.ensure_ascii = flag(in, a[0], false);
  style.sort_keys = flag(in, a[3], false);
  if (a[1] && !a[1]->is(Kind::kNone)) {
    if (a[1]->is(Kind::kString)) {
      style.indent = a[1]->text().bytes();
    } else {
      const int64_t n = int_argument(in, a[1], 0, "indent");
      if (n > 1000) in.fail("tojson: the indent is over 1000");
      style.indent = std::string(static_cast<size_t>(std::max<int64_t>(n, 0)), ' ');
    }
    style.item_separator.assign(1, ',');
  }
  if (a[2] && !a[2]->is(Kind::kNone)) {
    if (!a[2]->is_sequence() || a[2]->list().items.size() != 2)
      in.fail("tojson: separators must be two strings");
    style.item_separator = text_argument(in, a[2]->list().items[0], "separators").bytes();
    style.key_separator = text_argument(in, a[2]->list().items[1], "separators").bytes();
  }
  Text out;
  in.to_json(out, v, style);
  return in.string(std::move(out));
}

}  // namespace

const FilterTable& text_filters() {
  static const FilterTable filters = {
      {"capitalize", case_filter<CaseMap::kCapitalize>},
      {"center", center_filter},
      {"e", escape_filter},
      {"escape", escape_filter},
      {"format", format_filter},
      {"indent", indent_filter},
      {"join", join_filter},
      {"lower", case_filter<CaseMap::kLower>},
      {"replace", replace_filter},
      {"safe", safe_filter},
      {"string", string_filter},
      {"title", case_filter<CaseMap::kJinjaTitle>},
      {"tojson", tojson_filter},
      {"trim", trim_filter},
      {"truncate", truncate_filter},
      {"upper", case_filter<CaseMap::kUpper>},
      {"urlencode", urlencode_filter},
      {"wordcount", wordcount_filter},
  };
  return filters;
}

}  // namespace ts::jinja
