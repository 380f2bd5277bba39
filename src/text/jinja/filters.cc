// Jinja's filters. Those that give a generator in Jinja give a list here.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <unordered_map>

#include <fmt/format.h>

#include "base/quote_text.h"
#include "text/jinja/string_operations.h"

namespace ts::jinja {
namespace {

using In = Interpreter&;

Text soft_text(In in, const Value& v) {
  return in.to_text(v);
}

bool flag(In in, const Value* v, bool fallback) {
  return v ? in.truthy(*v) : fallback;
}

/// Reads "a.b.0" from an item, as attribute arguments of filters do.
Value dotted(In in, const Value& item, const Value& path) {
  if (path.is_integral()) return in.item(item, path);
  Value value = item;
  std::string_view rest = text_argument(in, path, "attribute").view();
  for (;;) {
    in.charge(1);
    const size_t dot = rest.find('.');
    const std::string_view part = rest.substr(0, dot);
    int64_t index = 0;
    const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), index);
    if (error == std::errc{} && end == part.data() + part.size())
      value = in.item(value, Value::integer(index));
    else
      value = in.item(value, in.string(std::string(part)));
    if (dot == std::string_view::npos) return value;
    rest.remove_prefix(dot + 1);
  }
}

/// What an item is sorted or compared by: an attribute, in lower case unless case matters.
Value key_of(In in, const Value& item, const Value* attribute, bool case_sensitive) {
  Value key = attribute && !attribute->is(Kind::kNone) ? dotted(in, item, *attribute) : item;
  if (!case_sensitive && key.is(Kind::kString))
    return in.string(map_case(in, key.text(), CaseMap::kLower));
  return key;
}

// Texts -----------------------------------------------------------------------------------------

template <CaseMap kMap>
Value case_filter(In in, const Value& v, Arguments& args) {
  bind(in, "filter", args, {});
  return in.string(map_case(in, soft_text(in, v), kMap));
}

Value trim_filter(In in, const Value& v, Arguments& args) {
  const auto a = bind(in, "trim", args, {"chars"});
  const Text* set = a[0] && !a[0]->is(Kind::kNone) ? &text_argument(in, *a[0], "chars") : nullptr;
  return in.string(strip(in, soft_text(in, v), set, true, true));
}

Value string_filter(In in, const Value& v, Arguments& args) {
  bind(in, "string", args, {});
  return v.is(Kind::kString) ? v : in.string(soft_text(in, v));
}

Value safe_filter(In in, const Value& v, Arguments& args) {
  bind(in, "safe", args, {});
  return v.is(Kind::kString) ? v : in.string(soft_text(in, v));
}

Value replace_filter(In in, const Value& v, Arguments& args) {
  const auto a = bind(in, "replace", args, {"old", "new", "count"}, 2);
  const int64_t count = a[2] && !a[2]->is(Kind::kNone) ? int_argument(in, a[2], -1, "count") : -1;
  return in.string(
      replace(in, soft_text(in, v), soft_text(in, *a[0]), soft_text(in, *a[1]), count));
}

Value join_filter(In in, const Value& v, Arguments& args) {
  const auto a = bind(in, "join", args, {"d", "attribute"});
  std::vector<Value> items = in.iterate(v);
  if (a[1] && !a[1]->is(Kind::kNone))
    for (Value& item : items)
      item = dotted(in, item, *a[1]);
  return in.string(join(in, a[0] ? soft_text(in, *a[0]) : Text(), items));
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
      indent(in, soft_text(in, v), indentation, flag(in, a[1], false), flag(in, a[2], false)));
}

Value center_filter(In in, const Value& v, Arguments& args) {
  const auto a = bind(in, "center", args, {"width"});
  return in.string(pad(in, soft_text(in, v), int_argument(in, a[0], 80, "width"), '^', " "));
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
  return in.string(percent_format(in, soft_text(in, v), values));
}

Value truncate_filter(In in, const Value& v, Arguments& args) {
  const auto a = bind(in, "truncate", args, {"length", "killwords", "end", "leeway"});
  const Text text = soft_text(in, v);
  const Text end = a[2] ? soft_text(in, *a[2]) : Text("...");
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
  Text text = soft_text(in, v);
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
    out.append(keep ? std::string(1, c)
               : c == ' ' && query
                   ? std::string("+")
                   : fmt::format("%{:02X}", static_cast<unsigned>(static_cast<unsigned char>(c))),
               origin.untrusted(i));
  }
  return out;
}

Value urlencode_filter(In in, const Value& v, Arguments& args) {
  bind(in, "urlencode", args, {});
  if (!v.is(Kind::kDict)) return in.string(url_quoted(in, soft_text(in, v), false));
  Text out;
  for (const auto& [key, value] : v.dict().entries) {
    if (!out.empty()) out.append("&", false);
    out.append(url_quoted(in, soft_text(in, key), true));
    out.append("=", false);
    out.append(url_quoted(in, soft_text(in, value), true));
    in.budget().reserve(out.heap_bytes());
  }
  return in.string(std::move(out));
}

Value wordcount_filter(In in, const Value& v, Arguments& args) {
  bind(in, "wordcount", args, {});
  const Text text = soft_text(in, v);
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
    style.item_separator = ",";
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

// Numbers ---------------------------------------------------------------------------------------

/// A decimal number in a text, with white space around it; nullopt when it is none.
std::optional<double> parse_float(std::string_view text) {
  const ByteRange r = strip_range(text, nullptr, true, true);
  std::string_view s = text.substr(r.begin, r.end - r.begin);
  if (!s.empty() && s[0] == '+') s.remove_prefix(1);
  double d = 0;
  const auto [end, error] = std::from_chars(s.data(), s.data() + s.size(), d);
  if (s.empty() || s[0] == '+' || error == std::errc::invalid_argument ||
      end != s.data() + s.size())
    return std::nullopt;
  return d;
}

Value int_filter(In in, const Value& v, Arguments& args) {
  const auto a = bind(in, "int", args, {"default", "base"});
  const Value fallback = a[0] ? *a[0] : Value::integer(0);
  const int64_t base = int_argument(in, a[1], 10, "base");
  in.require_defined(v);
  double d = 0;
  if (v.is_integral()) return Value::integer(v.as_int());
  if (v.is(Kind::kFloat)) {
    d = v.as_double();
  } else if (v.is(Kind::kString)) {
    if (base < 2 || base > 36) in.fail("int: the base must be 2 to 36");
    const ByteRange r = strip_range(v.text().view(), nullptr, true, true);
    std::string s = v.text().bytes().substr(r.begin, r.end - r.begin);
    const bool negative = !s.empty() && s[0] == '-';
    if (!s.empty() && (s[0] == '-' || s[0] == '+')) s.erase(0, 1);
    if (s.size() > 2 && s[0] == '0') {
      const char x = static_cast<char>(s[1] | 0x20);
      if ((x == 'x' && base == 16) || (x == 'o' && base == 8) || (x == 'b' && base == 2))
        s.erase(0, 2);
    }
    if (negative) s.insert(0, "-");
    int64_t i = 0;
    const auto [end, error] =
        std::from_chars(s.data(), s.data() + s.size(), i, static_cast<int>(base));
    if (error == std::errc::result_out_of_range && end == s.data() + s.size())
      in.fail("int: the number does not fit into 64 bits");
    if (error == std::errc{} && end == s.data() + s.size() && s != "-") return Value::integer(i);
    const std::optional<double> parsed = parse_float(v.text().view());
    if (!parsed) return fallback;
    d = *parsed;
  } else {
    return fallback;
  }
  if (!std::isfinite(d)) return fallback;
  if (std::abs(d) >= 9223372036854775807.0) in.fail("int: the number does not fit into 64 bits");
  return Value::integer(static_cast<int64_t>(d));
}

Value float_filter(In in, const Value& v, Arguments& args) {
  const auto a = bind(in, "float", args, {"default"});
  in.require_defined(v);
  if (v.is_number()) return Value::floating(v.as_double());
  if (v.is(Kind::kString))
    if (const auto d = parse_float(v.text().view())) return Value::floating(*d);
  return a[0] ? *a[0] : Value::floating(0);
}

Value abs_filter(In in, const Value& v, Arguments& args) {
  bind(in, "abs", args, {});
  in.require_defined(v);
  if (!v.is_number()) in.fail(fmt::format("abs: expected a number, found {}", type_name(v)));
  if (v.is(Kind::kFloat)) return Value::floating(std::abs(v.as_double()));
  return v.as_int() < 0 ? in.binary(Op::kSub, Value::integer(0), v) : Value::integer(v.as_int());
}

Value round_filter(In in, const Value& v, Arguments& args) {
  const auto a = bind(in, "round", args, {"precision", "method"});
  in.require_defined(v);
  if (!v.is_number()) in.fail(fmt::format("round: expected a number, found {}", type_name(v)));
  const int64_t precision = int_argument(in, a[0], 0, "precision");
  const std::string_view method = a[1] ? text_argument(in, *a[1], "method").view() : "common";
  if (method == "common") {
    if (v.is_integral() && precision >= 0) return Value::integer(v.as_int());
    if (precision >= 0) {
      if (precision > 320 || !std::isfinite(v.as_double())) return v;
      // printf rounds the exact binary value half to even, as Python does.
      std::string buffer(1024, '\0');
      const int n = std::snprintf(buffer.data(), buffer.size(), "%.*f", static_cast<int>(precision),
                                  v.as_double());
      double d = 0;
      std::from_chars(buffer.data(), buffer.data() + n, d);
      return Value::floating(d);
    }
    const double unit = std::pow(10.0, static_cast<double>(std::min<int64_t>(-precision, 400)));
    const double rounded = std::isinf(unit) ? 0.0 : std::nearbyint(v.as_double() / unit) * unit;
    if (v.is_integral()) return Value::integer(static_cast<int64_t>(rounded));
    return Value::floating(rounded);
  }
  if (method != "ceil" && method != "floor") in.fail("round: method must be common, ceil or floor");
  const double scale =
      std::pow(10.0, static_cast<double>(std::clamp<int64_t>(precision, -300, 300)));
  const double scaled = v.as_double() * scale;
  return Value::floating((method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / scale);
}

Value sum_filter(In in, const Value& v, Arguments& args) {
  const auto a = bind(in, "sum", args, {"attribute", "start"});
  Value total = a[1] ? *a[1] : Value::integer(0);
  for (const Value& item : in.iterate(v))
    total =
        in.binary(Op::kAdd, total, a[0] && !a[0]->is(Kind::kNone) ? dotted(in, item, *a[0]) : item);
  return total;
}

// Sequences -------------------------------------------------------------------------------------

Value length_filter(In in, const Value& v, Arguments& args) {
  bind(in, "length", args, {});
  return Value::integer(in.length(v));
}

Value default_filter(In in, const Value& v, Arguments& args) {
  const auto a = bind(in, "default", args, {"default_value", "boolean"});
  if (v.is(Kind::kUndefined) || (flag(in, a[1], false) && !in.truthy(v)))
    return a[0] ? *a[0] : in.string(Text());
  return v;
}

Value first_filter(In in, const Value& v, Arguments& args) {
  bind(in, "first", args, {});
  const std::vector<Value> items = in.iterate(v);
  return items.empty() ? in.undefined("the sequence has no first item") : items.front();
}

Value last_filter(In in, const Value& v, Arguments& args) {
  bind(in, "last", args, {});
  const std::vector<Value> items = in.iterate(v);
  return items.empty() ? in.undefined("the sequence has no last item") : items.back();
}

Value list_filter(In in, const Value& v, Arguments& args) {
  bind(in, "list", args, {});
  return in.list(in.iterate(v));
}

Value items_filter(In in, const Value& v, Arguments& args) {
  bind(in, "items", args, {});
  if (v.is(Kind::kUndefined)) return in.list({});
  if (!v.is(Kind::kDict)) in.fail(fmt::format("items: expected a dict, found {}", type_name(v)));
  return find_method(Kind::kDict, "items")(in, v, args);
}

Value reverse_filter(In in, const Value& v, Arguments& args) {
  bind(in, "reverse", args, {});
  std::vector<Value> items = in.iterate(v);
  std::reverse(items.begin(), items.end());
  if (v.is(Kind::kString)) return in.string(join(in, Text(), items));
  return in.list(std::move(items));
}

Value sort_filter(In in, const Value& v, Arguments& args) {
  const auto a = bind(in, "sort", args, {"reverse", "case_sensitive", "attribute"});
  const bool case_sensitive = flag(in, a[1], false);
  std::vector<std::pair<std::vector<Value>, Value>> keyed;
  // "a,b" sorts by several attributes.
  std::vector<Value> attributes;
  if (a[2] && a[2]->is(Kind::kString)) {
    const Text comma(",");
    for (Text& part : split(in, a[2]->text(), &comma, -1, false))
      attributes.push_back(in.string(std::move(part)));
  } else if (a[2] && !a[2]->is(Kind::kNone)) {
    attributes.push_back(*a[2]);
  }
  for (const Value& item : in.iterate(v)) {
    std::vector<Value> key;
    if (attributes.empty()) key.push_back(key_of(in, item, nullptr, case_sensitive));
    for (const Value& attribute : attributes)
      key.push_back(key_of(in, item, &attribute, case_sensitive));
    keyed.emplace_back(std::move(key), item);
  }
  const auto less = [&](const auto& x, const auto& y) {
    for (size_t i = 0; i < x.first.size(); ++i)
      if (!in.equal(x.first[i], y.first[i])) return in.less(x.first[i], y.first[i]);
    return false;
  };
  if (flag(in, a[0], false))
    std::stable_sort(keyed.begin(), keyed.end(),
                     [&](const auto& x, const auto& y) { return less(y, x); });
  else
    std::stable_sort(keyed.begin(), keyed.end(), less);
  std::vector<Value> items;
  for (auto& [key, item] : keyed)
    items.push_back(std::move(item));
  return in.list(std::move(items));
}

Value dictsort_filter(In in, const Value& v, Arguments& args) {
  const auto a = bind(in, "dictsort", args, {"case_sensitive", "by", "reverse"});
  if (!v.is(Kind::kDict)) in.fail(fmt::format("dictsort: expected a dict, found {}", type_name(v)));
  const std::string_view by = a[1] ? text_argument(in, *a[1], "by").view() : "key";
  if (by != "key" && by != "value") in.fail("dictsort: 'by' must be 'key' or 'value'");
  Arguments none, sort_args;
  sort_args.named = {{"attribute", Value::integer(by == "key" ? 0 : 1)},
                     {"case_sensitive", Value::boolean(flag(in, a[0], false))},
                     {"reverse", Value::boolean(flag(in, a[2], false))}};
  return sort_filter(in, find_method(Kind::kDict, "items")(in, v, none), sort_args);
}

template <bool kMax>
Value extreme_filter(In in, const Value& v, Arguments& args) {
  const auto a = bind(in, kMax ? "max" : "min", args, {"case_sensitive", "attribute"});
  const bool case_sensitive = flag(in, a[0], false);
  const std::vector<Value> items = in.iterate(v);
  if (items.empty()) return in.undefined("the sequence is empty");
  Value best = items[0], best_key = key_of(in, items[0], a[1], case_sensitive);
  for (size_t i = 1; i < items.size(); ++i) {
    Value key = key_of(in, items[i], a[1], case_sensitive);
    if (kMax ? in.less(best_key, key) : in.less(key, best_key)) {
      best = items[i];
      best_key = std::move(key);
    }
  }
  return best;
}

Value unique_filter(In in, const Value& v, Arguments& args) {
  const auto a = bind(in, "unique", args, {"case_sensitive", "attribute"});
  const bool case_sensitive = flag(in, a[0], false);
  std::vector<Value> kept, keys;
  for (const Value& item : in.iterate(v)) {
    Value key = key_of(in, item, a[1], case_sensitive);
    if (std::any_of(keys.begin(), keys.end(), [&](const Value& k) { return in.equal(k, key); }))
      continue;
    keys.push_back(std::move(key));
    kept.push_back(item);
  }
  return in.list(std::move(kept));
}

Value groupby_filter(In in, const Value& v, Arguments& args) {
  const auto a = bind(in, "groupby", args, {"attribute", "default", "case_sensitive"}, 1);
  const bool case_sensitive = flag(in, a[2], false);
  const auto key_for = [&](const Value& item) {
    Value key = dotted(in, item, *a[0]);
    return key.is(Kind::kUndefined) && a[1] ? *a[1] : key;
  };
  std::vector<std::pair<Value, Value>> keyed;  // folded key, item
  for (const Value& item : in.iterate(v))
    keyed.emplace_back(key_of(in, key_for(item), nullptr, case_sensitive), item);
  std::stable_sort(keyed.begin(), keyed.end(), [&](const auto& x, const auto& y) {
    return !in.equal(x.first, y.first) && in.less(x.first, y.first);
  });
  std::vector<Value> groups;
  for (size_t i = 0; i < keyed.size();) {
    std::vector<Value> members;
    const size_t begin = i;
    for (; i < keyed.size() && in.equal(keyed[i].first, keyed[begin].first); ++i)
      members.push_back(keyed[i].second);
    groups.push_back(in.tuple({key_for(keyed[begin].second), in.list(std::move(members))}));
    if (i == begin) ++i;  // a NaN equals nothing
  }
  return in.list(std::move(groups));
}

/// Like Jinja, these take whatever is false (none, 0) for an empty sequence.
std::vector<Value> items_or_none(In in, const Value& v) {
  return in.truthy(v) ? in.iterate(v) : std::vector<Value>();
}

Value map_filter(In in, const Value& v, Arguments& args) {
  std::vector<Value> result;
  if (args.positional.empty()) {
    const auto a = bind(in, "map", args, {"attribute", "default"}, 1);
    for (const Value& item : items_or_none(in, v)) {
      Value value = dotted(in, item, *a[0]);
      if (value.is(Kind::kUndefined) && a[1]) value = *a[1];
      result.push_back(std::move(value));
    }
    return in.list(std::move(result));
  }
  const std::string name = text_argument(in, args.positional[0], "filter").bytes();
  for (const Value& item : items_or_none(in, v)) {
    in.charge(1);
    Arguments rest = args;
    rest.positional.erase(rest.positional.begin());
    result.push_back(in.filter(name, item, rest));
  }
  return in.list(std::move(result));
}

template <bool kKeep, bool kAttribute>
Value select_filter(In in, const Value& v, Arguments& args) {
  size_t used = 0;
  Value attribute;
  if (kAttribute) {
    if (args.positional.empty()) in.fail("the filter needs the name of an attribute");
    attribute = args.positional[used++];
  }
  std::string test;
  if (args.positional.size() > used)
    test = text_argument(in, args.positional[used++], "test").bytes();
  Arguments rest;
  rest.positional.assign(args.positional.begin() + static_cast<ptrdiff_t>(used),
                         args.positional.end());
  rest.named = args.named;
  std::vector<Value> kept;
  for (const Value& item : items_or_none(in, v)) {
    const Value value = kAttribute ? dotted(in, item, attribute) : item;
    if ((test.empty() ? in.truthy(value) : in.test(test, value, rest)) == kKeep)
      kept.push_back(item);
  }
  return in.list(std::move(kept));
}

Value batch_filter(In in, const Value& v, Arguments& args) {
  const auto a = bind(in, "batch", args, {"linecount", "fill_with"}, 1);
  const int64_t n = int_argument(in, a[0], 1, "linecount");
  if (n < 1) in.fail("batch: the size must be at least 1");
  std::vector<Value> batches, batch;
  for (const Value& item : in.iterate(v)) {
    if (static_cast<int64_t>(batch.size()) == n)
      batches.push_back(in.list(std::exchange(batch, {})));
    batch.push_back(item);
  }
  if (!batch.empty()) {
    if (a[1] && !a[1]->is(Kind::kNone)) {
      in.budget().reserve(static_cast<size_t>(std::min<int64_t>(n, INT64_MAX / 64)) *
                          sizeof(Value));
      while (static_cast<int64_t>(batch.size()) < n) {
        in.charge(1);
        batch.push_back(*a[1]);
      }
    }
    batches.push_back(in.list(std::move(batch)));
  }
  return in.list(std::move(batches));
}

Value attr_filter(In in, const Value& v, Arguments& args) {
  const auto a = bind(in, "attr", args, {"name"}, 1);
  return in.attribute(v, text_argument(in, *a[0], "name").view());
}

const std::unordered_map<std::string_view, Builtin>& table() {
  static const std::unordered_map<std::string_view, Builtin> filters = {
      {"abs", abs_filter},
      {"attr", attr_filter},
      {"batch", batch_filter},
      {"capitalize", case_filter<CaseMap::kCapitalize>},
      {"center", center_filter},
      {"count", length_filter},
      {"d", default_filter},
      {"default", default_filter},
      {"dictsort", dictsort_filter},
      {"e", escape_filter},
      {"escape", escape_filter},
      {"first", first_filter},
      {"float", float_filter},
      {"format", format_filter},
      {"groupby", groupby_filter},
      {"indent", indent_filter},
      {"int", int_filter},
      {"items", items_filter},
      {"join", join_filter},
      {"last", last_filter},
      {"length", length_filter},
      {"list", list_filter},
      {"lower", case_filter<CaseMap::kLower>},
      {"map", map_filter},
      {"max", extreme_filter<true>},
      {"min", extreme_filter<false>},
      {"reject", select_filter<false, false>},
      {"rejectattr", select_filter<false, true>},
      {"replace", replace_filter},
      {"reverse", reverse_filter},
      {"round", round_filter},
      {"safe", safe_filter},
      {"select", select_filter<true, false>},
      {"selectattr", select_filter<true, true>},
      {"sort", sort_filter},
      {"string", string_filter},
      {"sum", sum_filter},
      {"title", case_filter<CaseMap::kJinjaTitle>},
      {"tojson", tojson_filter},
      {"trim", trim_filter},
      {"truncate", truncate_filter},
      {"unique", unique_filter},
      {"upper", case_filter<CaseMap::kUpper>},
      {"urlencode", urlencode_filter},
      {"wordcount", wordcount_filter},
  };
  return filters;
}

}  // namespace

Builtin find_filter(std::string_view name) {
  const auto it = table().find(name);
  return it == table().end() ? nullptr : it->second;
}

Value Interpreter::filter(std::string_view name, const Value& input, Arguments& args) {
  const Builtin found = find_filter(name);
  if (!found) fail(fmt::format("unknown filter {}", quote_text(name, 40)));
  const Nesting nesting(*this);
  return found(*this, input, args);
}

}  // namespace ts::jinja
