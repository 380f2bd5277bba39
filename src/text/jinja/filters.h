/// Jinja's filters, by what they make.
#pragma once

#include <string_view>
#include <unordered_map>

#include "text/jinja/interpreter.h"

namespace ts::jinja {

using FilterTable = std::unordered_map<std::string_view, Builtin>;
const FilterTable& text_filters();
const FilterTable& number_filters();
const FilterTable& sequence_filters();

/// A flag argument: Python's bool() of it.
bool flag(Interpreter& in, const Value* value, bool fallback);
/// Reads "a.b.0" from an item, as attribute arguments of filters do.
Value dotted(Interpreter& in, const Value& item, const Value& path);

}  // namespace ts::jinja
