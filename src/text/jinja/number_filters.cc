// Filters that make numbers.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <optional>

#include <fmt/format.h>

#include "base/quote_text.h"
#include "text/jinja/filters.h"
#include "text/jinja/string_operations.h"

namespace ts::jinja {
namespace {

using In = Interpreter&;

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
    if (negative) s = std::string(1, '-').append(s);
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

}  // namespace

const FilterTable& number_filters() {
  static const FilterTable filters = {
      {"abs", abs_filter},     {"float", float_filter}, {"int", int_filter},
      {"round", round_filter}, {"sum", sum_filter},
  };
  return filters;
}

}  // namespace ts::jinja
