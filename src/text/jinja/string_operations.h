/// Operations on texts that filters and methods share. All keep the origin of every byte.
#pragma once

#include <cstdint>
#include <vector>

#include "text/jinja/interpreter.h"

namespace ts::jinja {

/// Applies `map` to every character (which may give several).
enum class CaseMap { kUpper, kLower, kCapitalize, kTitle, kSwap, kJinjaTitle };
Text map_case(Interpreter& in, const Text& text, CaseMap map);

/// str.split / rsplit: `separator` null = runs of white space. max_splits < 0 = no limit.
std::vector<Text> split(Interpreter& in, const Text& text, const Text* separator,
                        int64_t max_splits, bool from_right);
std::vector<Text> split_lines(Interpreter& in, const Text& text, bool keep_ends);
/// At most `count` replacements; count < 0 = all.
Text replace(Interpreter& in, const Text& text, const Text& from, const Text& to, int64_t count);
Text join(Interpreter& in, const Text& separator, const std::vector<Value>& items);
/// Without white space, or characters of `*set`, at its ends.
Text strip(Interpreter& in, const Text& text, const Text* set, bool left, bool right);
/// Padded with `fill` to `width` characters; align '<', '>' or '^'.
Text pad(Interpreter& in, const Text& text, int64_t width, char align, std::string_view fill);
Text indent(Interpreter& in, const Text& text, const Text& indentation, bool first, bool blank);
/// str.format with {} {0} {name} and {{ }}; conversions and format specifications are refused.
Text brace_format(Interpreter& in, const Text& format, const Arguments& arguments);

}  // namespace ts::jinja
