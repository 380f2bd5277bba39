#include "text/jinja/filters.h"

#include <charconv>

#include <fmt/format.h>

#include "base/quote_text.h"

namespace ts::jinja {

bool flag(Interpreter& in, const Value* v, bool fallback) {
  return v ? in.truthy(*v) : fallback;
}

Value dotted(Interpreter& in, const Value& item, const Value& path) {
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

Builtin find_filter(std::string_view name) {
  for (const FilterTable* table : {&text_filters(), &number_filters(), &sequence_filters()}) {
    const auto it = table->find(name);
    if (it != table->end()) return it->second;
  }
  return nullptr;
}

Value Interpreter::filter(std::string_view name, const Value& input, Arguments& args) {
  const Builtin found = find_filter(name);
  if (!found) fail(fmt::format("unknown filter {}", quote_text(name, 40)));
  const Nesting nesting(*this);
  return found(*this, input, args);
}

}  // namespace ts::jinja
