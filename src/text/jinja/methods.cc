// Methods of str, list, tuple and dict, as in Python.
#include <algorithm>
#include <unordered_map>

#include <fmt/format.h>

#include "text/jinja/string_operations.h"

namespace ts::jinja {
namespace {

using In = Interpreter&;

const Text* optional_text(In in, const Value* v, std::string_view name) {
  return v && !v->is(Kind::kNone) ? &text_argument(in, *v, name) : nullptr;
}

template <bool kLeft, bool kRight>
Value strip_method(In in, const Value& self, Arguments& args) {
  const auto a = bind(in, "strip", args, {"chars"});
  return in.string(strip(in, self.text(), optional_text(in, a[0], "chars"), kLeft, kRight));
}

Value strings(In in, std::vector<Text> parts) {
  std::vector<Value> items;
  items.reserve(parts.size());
  for (Text& part : parts)
    items.push_back(in.string(std::move(part)));
  return in.list(std::move(items));
}

template <bool kFromRight>
Value split_method(In in, const Value& self, Arguments& args) {
  const auto a = bind(in, "split", args, {"sep", "maxsplit"});
  return strings(in, split(in, self.text(), optional_text(in, a[0], "sep"),
                           int_argument(in, a[1], -1, "maxsplit"), kFromRight));
}

/// The part of the text that optional `start` and `end` arguments (in characters) select.
ByteRange selected(In in, const Text& text, const Value* start, const Value* end) {
  in.charge_bytes(2 * text.size());
  const auto size = static_cast<int64_t>(count_chars(text.view()));
  const auto index = [&](const Value* v, int64_t fallback, std::string_view name) {
    if (!v || v->is(Kind::kNone)) return fallback;
    int64_t i = int_argument(in, v, fallback, name);
    if (i < 0) i = std::max<int64_t>(0, i + size);
    return i;
  };
  const int64_t b = index(start, 0, "start"), e = std::min(index(end, size, "end"), size);
  if (b > size || b > e) return {1, 0};  // nothing matches, not even the empty text
  return {char_offset(text.view(), static_cast<size_t>(b)),
          char_offset(text.view(), static_cast<size_t>(e))};
}

template <bool kStart>
Value affix_method(In in, const Value& self, Arguments& args) {
  const auto a = bind(in, kStart ? "startswith" : "endswith", args, {"prefix", "start", "end"}, 1);
  const ByteRange r = selected(in, self.text(), a[1], a[2]);
  if (r.begin > r.end) return Value::boolean(false);
  const std::string_view s = self.text().view().substr(r.begin, r.end - r.begin);
  const auto matches = [&](const Value& v) {
    const std::string_view t = text_argument(in, v, "prefix").view();
    return kStart ? s.starts_with(t) : s.ends_with(t);
  };
  if (a[0]->is(Kind::kTuple))
    return Value::boolean(
        std::any_of(a[0]->list().items.begin(), a[0]->list().items.end(), matches));
  return Value::boolean(matches(*a[0]));
}

template <bool kLast, bool kMustExist>
Value find_in_text(In in, const Value& self, Arguments& args) {
  const auto a = bind(in, kLast ? "rfind" : "find", args, {"sub", "start", "end"}, 1);
  const std::string_view sub = text_argument(in, *a[0], "sub").view();
  const ByteRange r = selected(in, self.text(), a[1], a[2]);
  size_t hit = std::string_view::npos;
  if (r.begin <= r.end) {
    const std::string_view s = self.text().view().substr(0, r.end);
    if (!kLast) {
      hit = find_bytes(s, sub, r.begin);
    } else if (sub.empty()) {
      hit = r.end;
    } else {
      for (size_t from = r.begin;;) {
        const size_t next = find_bytes(s, sub, from);
        if (next == std::string_view::npos) break;
        in.charge(1 + sub.size() / 32);
        hit = next;
        from = next + 1;
      }
    }
  }
  if (hit == std::string_view::npos) {
    if (kMustExist) in.fail("index(): the text was not found");
    return Value::integer(-1);
  }
  return Value::integer(static_cast<int64_t>(count_chars(self.text().view().substr(0, hit))));
}

Value count_in_text(In in, const Value& self, Arguments& args) {
  const auto a = bind(in, "count", args, {"sub", "start", "end"}, 1);
  const std::string_view sub = text_argument(in, *a[0], "sub").view();
  const ByteRange r = selected(in, self.text(), a[1], a[2]);
  if (r.begin > r.end) return Value::integer(0);
  const std::string_view s = self.text().view().substr(r.begin, r.end - r.begin);
  if (sub.empty()) return Value::integer(static_cast<int64_t>(count_chars(s)) + 1);
  int64_t n = 0;
  for (size_t from = 0; (from = find_bytes(s, sub, from)) != s.npos; from += sub.size()) {
    in.charge(1);
    ++n;
  }
  return Value::integer(n);
}

Value replace_method(In in, const Value& self, Arguments& args) {
  const auto a = bind(in, "replace", args, {"old", "new", "count"}, 2);
  return in.string(replace(in, self.text(), text_argument(in, *a[0], "old"),
                           text_argument(in, *a[1], "new"), int_argument(in, a[2], -1, "count")));
}

template <CaseMap kMap>
Value case_method(In in, const Value& self, Arguments& args) {
  bind(in, "the method", args, {});
  return in.string(map_case(in, self.text(), kMap));
}

Value join_method(In in, const Value& self, Arguments& args) {
  const auto a = bind(in, "join", args, {"iterable"}, 1);
  in.require_defined(*a[0]);
  const std::vector<Value> items = in.iterate(*a[0]);
  for (const Value& v : items)
    text_argument(in, v, "item of join()");
  return in.string(join(in, self.text(), items));
}

Value splitlines_method(In in, const Value& self, Arguments& args) {
  const auto a = bind(in, "splitlines", args, {"keepends"});
  return strings(in, split_lines(in, self.text(), a[0] && in.truthy(*a[0])));
}

template <bool kPrefix>
Value remove_affix(In in, const Value& self, Arguments& args) {
  const auto a = bind(in, "removeprefix", args, {"affix"}, 1);
  const Text& affix = text_argument(in, *a[0], "affix");
  const Text& text = self.text();
  if (affix.empty() ||
      !(kPrefix ? text.view().starts_with(affix.view()) : text.view().ends_with(affix.view())))
    return self;
  return in.string(kPrefix ? text.substr(affix.size(), text.size())
                           : text.substr(0, text.size() - affix.size()));
}

template <typename Predicate>
Value all_chars(In in, const Value& self, Arguments& args, Predicate predicate) {
  bind(in, "the method", args, {});
  const std::string_view s = self.text().view();
  in.charge_bytes(4 * s.size());
  for (size_t p = 0; p < s.size();)
    if (!predicate(next_char(s, p))) return Value::boolean(false);
  return Value::boolean(!s.empty());
}
Value isdigit_method(In in, const Value& self, Arguments& args) {
  return all_chars(in, self, args, is_decimal_digit);
}
Value isalpha_method(In in, const Value& self, Arguments& args) {
  return all_chars(in, self, args, is_alphabetic);
}
Value isalnum_method(In in, const Value& self, Arguments& args) {
  return all_chars(in, self, args,
                   [](char32_t c) { return is_alphabetic(c) || is_decimal_digit(c); });
}
Value isspace_method(In in, const Value& self, Arguments& args) {
  return all_chars(in, self, args, is_space);
}
template <bool kUpper>
Value iscase_method(In in, const Value& self, Arguments& args) {
  bind(in, "the method", args, {});
  const std::string_view s = self.text().view();
  in.charge_bytes(4 * s.size());
  bool any = false;
  for (size_t p = 0; p < s.size();) {
    const char32_t c = next_char(s, p);
    if (kUpper ? is_lower(c) : is_upper(c)) return Value::boolean(false);
    any = any || (kUpper ? is_upper(c) : is_lower(c));
  }
  return Value::boolean(any);
}

template <char kAlign>
Value pad_method(In in, const Value& self, Arguments& args) {
  const auto a = bind(in, "the method", args, {"width", "fillchar"}, 1);
  const std::string_view fill = a[1] ? text_argument(in, *a[1], "fillchar").view() : " ";
  if (count_chars(fill) != 1) in.fail("the fill character must be one character");
  return in.string(pad(in, self.text(), int_argument(in, a[0], 0, "width"), kAlign, fill));
}

Value zfill_method(In in, const Value& self, Arguments& args) {
  const auto a = bind(in, "zfill", args, {"width"}, 1);
  const Text& text = self.text();
  const size_t sign = !text.empty() && (text.view()[0] == '-' || text.view()[0] == '+') ? 1 : 0;
  const int64_t width = std::max<int64_t>(int_argument(in, a[0], 0, "width"), 0);
  Text out = text.substr(0, sign);
  out.append(pad(in, text.substr(sign, text.size()), width - static_cast<int64_t>(sign), '>', "0"));
  return in.string(std::move(out));
}

template <bool kLast>
Value partition_method(In in, const Value& self, Arguments& args) {
  const auto a = bind(in, "partition", args, {"sep"}, 1);
  const Text& sep = text_argument(in, *a[0], "sep");
  const Text& text = self.text();
  if (sep.empty()) in.fail("partition(): the separator is empty");
  in.charge_bytes((kLast ? sep.size() : 4) * text.size());
  const size_t hit = kLast ? text.view().rfind(sep.view()) : find_bytes(text.view(), sep.view(), 0);
  std::vector<Value> parts;
  if (hit == std::string_view::npos) {
    parts = {self, in.string(Text()), in.string(Text())};
    if (kLast) std::swap(parts[0], parts[2]);
  } else {
    parts = {in.string(text.substr(0, hit)), in.string(sep),
             in.string(text.substr(hit + sep.size(), text.size()))};
  }
  return in.tuple(std::move(parts));
}

Value format_method(In in, const Value& self, Arguments& args) {
  return in.string(brace_format(in, self.text(), args));
}

// dict ------------------------------------------------------------------------------------------

Value items_method(In in, const Value& self, Arguments& args) {
  bind(in, "items", args, {});
  std::vector<Value> items;
  for (const auto& [key, value] : self.dict().entries) {
    in.charge(1);
    items.push_back(in.tuple({key, value}));
  }
  return in.list(std::move(items));
}
Value keys_method(In in, const Value& self, Arguments& args) {
  bind(in, "keys", args, {});
  return in.list(in.iterate(self));
}
Value values_method(In in, const Value& self, Arguments& args) {
  bind(in, "values", args, {});
  std::vector<Value> values;
  for (const auto& [key, value] : self.dict().entries) {
    in.charge(1);
    values.push_back(value);
  }
  return in.list(std::move(values));
}
Value get_method(In in, const Value& self, Arguments& args) {
  const auto a = bind(in, "get", args, {"key", "default"}, 1);
  if (const Value* v = self.dict().find(*a[0])) return *v;
  return a[1] ? *a[1] : Value::none();
}
Value copy_dict(In in, const Value& self, Arguments& args) {
  bind(in, "copy", args, {});
  auto dict = std::make_shared<Dict>(in.budget());
  for (const auto& [key, value] : self.dict().entries) {
    in.charge(1);
    dict->set(key, value);
  }
  return Value::object(Kind::kDict, std::move(dict));
}

// list and tuple ----------------------------------------------------------------------------------

Value index_in_list(In in, const Value& self, Arguments& args) {
  const auto a = bind(in, "index", args, {"value"}, 1);
  const auto& items = self.list().items;
  for (size_t i = 0; i < items.size(); ++i)
    if (in.equal(items[i], *a[0])) return Value::integer(static_cast<int64_t>(i));
  in.fail("index(): the value is not in the list");
}
Value count_in_list(In in, const Value& self, Arguments& args) {
  const auto a = bind(in, "count", args, {"value"}, 1);
  int64_t n = 0;
  for (const Value& v : self.list().items)
    n += in.equal(v, *a[0]);
  return Value::integer(n);
}
Value copy_list(In in, const Value& self, Arguments& args) {
  bind(in, "copy", args, {});
  return in.list(in.iterate(self));
}

/// Lists the template made may be changed; those of the request may not.
List& changeable(In in, const Value& self) {
  if (self.list().from_input)
    in.fail("a list of the request cannot be changed; make a copy: [] + list");
  return self.list();
}
void check_no_cycle(In in, const Value& self, const Value& item) {
  if (in.reaches(item, self.identity())) in.fail("a list cannot hold itself");
}
Value append_method(In in, const Value& self, Arguments& args) {
  const auto a = bind(in, "append", args, {"value"}, 1);
  List& list = changeable(in, self);
  check_no_cycle(in, self, *a[0]);
  list.push(*a[0]);
  return Value::none();
}
Value extend_method(In in, const Value& self, Arguments& args) {
  const auto a = bind(in, "extend", args, {"iterable"}, 1);
  List& list = changeable(in, self);
  in.require_defined(*a[0]);
  for (const Value& v : in.iterate(*a[0])) {
    check_no_cycle(in, self, v);
    list.push(v);
  }
  return Value::none();
}
Value pop_method(In in, const Value& self, Arguments& args) {
  const auto a = bind(in, "pop", args, {"index"});
  List& list = changeable(in, self);
  const auto size = static_cast<int64_t>(list.items.size());
  int64_t i = int_argument(in, a[0], -1, "index");
  if (i < 0) i += size;
  if (i < 0 || i >= size) in.fail("pop(): there is no such element");
  in.charge(static_cast<uint64_t>(size - i) / 8);
  Value v = list.items[static_cast<size_t>(i)];
  list.items.erase(list.items.begin() + i);
  return v;
}

using Table = std::unordered_map<std::string_view, Builtin>;

const Table& string_methods() {
  static const Table table = {
      {"strip", strip_method<true, true>},
      {"lstrip", strip_method<true, false>},
      {"rstrip", strip_method<false, true>},
      {"split", split_method<false>},
      {"rsplit", split_method<true>},
      {"startswith", affix_method<true>},
      {"endswith", affix_method<false>},
      {"find", find_in_text<false, false>},
      {"rfind", find_in_text<true, false>},
      {"index", find_in_text<false, true>},
      {"rindex", find_in_text<true, true>},
      {"count", count_in_text},
      {"replace", replace_method},
      {"upper", case_method<CaseMap::kUpper>},
      {"lower", case_method<CaseMap::kLower>},
      {"casefold", case_method<CaseMap::kLower>},
      {"capitalize", case_method<CaseMap::kCapitalize>},
      {"title", case_method<CaseMap::kTitle>},
      {"swapcase", case_method<CaseMap::kSwap>},
      {"join", join_method},
      {"splitlines", splitlines_method},
      {"removeprefix", remove_affix<true>},
      {"removesuffix", remove_affix<false>},
      {"isdigit", isdigit_method},
      {"isdecimal", isdigit_method},
      {"isnumeric", isdigit_method},
      {"isalpha", isalpha_method},
      {"isalnum", isalnum_method},
      {"isspace", isspace_method},
      {"isupper", iscase_method<true>},
      {"islower", iscase_method<false>},
      {"ljust", pad_method<'<'>},
      {"rjust", pad_method<'>'>},
      {"center", pad_method<'^'>},
      {"zfill", zfill_method},
      {"partition", partition_method<false>},
      {"rpartition", partition_method<true>},
      {"format", format_method},
  };
  return table;
}

const Table& dict_methods() {
  static const Table table = {{"items", items_method},
                              {"keys", keys_method},
                              {"values", values_method},
                              {"get", get_method},
                              {"copy", copy_dict}};
  return table;
}

const Table& list_methods() {
  static const Table table = {{"index", index_in_list},  {"count", count_in_list},
                              {"copy", copy_list},       {"append", append_method},
                              {"extend", extend_method}, {"pop", pop_method}};
  return table;
}

}  // namespace

Builtin find_method(Kind kind, std::string_view name) {
  const Table* table = kind == Kind::kString                         ? &string_methods()
                       : kind == Kind::kDict                         ? &dict_methods()
                       : kind == Kind::kList || kind == Kind::kTuple ? &list_methods()
                                                                     : nullptr;
  if (!table) return nullptr;
  const auto it = table->find(name);
  if (it == table->end()) return nullptr;
  if (kind == Kind::kTuple && name != "index" && name != "count") return nullptr;
  return it->second;
}

}  // namespace ts::jinja
