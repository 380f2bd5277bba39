// Python's operations on values: truth, text forms, comparison, arithmetic.
#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "base/quote_text.h"
#include "text/jinja/interpreter.h"

namespace ts::jinja {

bool Interpreter::truthy(const Value& v) const {
  switch (v.kind()) {
    case Kind::kUndefined:
    case Kind::kNone:
      return false;
    case Kind::kBool:
    case Kind::kInt:
      return v.as_int() != 0;
    case Kind::kFloat:
      return v.as_double() != 0;
    case Kind::kString:
      return !v.text().empty();
    case Kind::kList:
    case Kind::kTuple:
      return !v.list().items.empty();
    case Kind::kDict:
      return !v.dict().entries.empty();
    default:
      return true;
  }
}

Text Interpreter::to_text(const Value& v) {
  if (v.is(Kind::kString)) return v.text();
  Text out;
  if (!v.is(Kind::kUndefined)) repr(out, v);
  return out;
}

namespace {

/// Python's repr of a str: single quotes unless it holds one and no double quote.
void repr_string(Text& out, const Text& text) {
  const std::string_view s = text.view();
  const char quote = s.find('\'') != s.npos && s.find('"') == s.npos ? '"' : '\'';
  out.append(std::string_view(&quote, 1), false);
  OriginCursor origin(text);
  std::string piece;
  for (size_t p = 0; p < s.size();) {
    const size_t begin = p;
    const char32_t c = next_char(s, p);
    piece.clear();
    if (c == U'\\' || c == static_cast<char32_t>(quote))
      piece = {'\\', static_cast<char>(c)};
    else if (c == '\n')
      piece = "\\n";
    else if (c == '\r')
      piece = "\\r";
    else if (c == '\t')
      piece = "\\t";
    else if (is_printable(c))
      piece = s.substr(begin, p - begin);
    else if (c < 0x100)
      piece = fmt::format("\\x{:02x}", static_cast<uint32_t>(c));
    else if (c < 0x10000)
      piece = fmt::format("\\u{:04x}", static_cast<uint32_t>(c));
    else
      piece = fmt::format("\\U{:08x}", static_cast<uint32_t>(c));
    out.append(piece, origin.untrusted(begin));
  }
  out.append(std::string_view(&quote, 1), false);
}

}  // namespace

void Interpreter::repr(Text& out, const Value& v) {
  const Nesting nesting(*this);
  charge(1);
  budget_.reserve(out.heap_bytes());
  const auto put = [&](std::string_view s) { out.append(s, false); };
  const auto items = [&](const std::vector<Value>& values) {
    bool first = true;
    for (const Value& item : values) {
      if (!first) put(", ");
      first = false;
      repr(out, item);
    }
  };
  switch (v.kind()) {
    case Kind::kUndefined:
      put("Undefined");
      return;
    case Kind::kNone:
      put("None");
      return;
    case Kind::kBool:
      put(v.as_int() ? "True" : "False");
      return;
    case Kind::kInt:
      put(std::to_string(v.as_int()));
      return;
    case Kind::kFloat:
      put(float_repr(v.as_double()));
      return;
    case Kind::kString:
      charge_bytes(8 * v.text().size());
      repr_string(out, v.text());
      return;
    case Kind::kList:
      put("[");
      items(v.list().items);
      put("]");
      return;
    case Kind::kTuple:
      put("(");
      items(v.list().items);
      put(v.list().items.size() == 1 ? ",)" : ")");
      return;
    case Kind::kDict: {
      put("{");
      bool first = true;
      for (const auto& [key, value] : v.dict().entries) {
        if (!first) put(", ");
        first = false;
        repr(out, key);
        put(": ");
        repr(out, value);
      }
      put("}");
      return;
    }
    case Kind::kNamespace: {
      put("<Namespace {");
      bool first = true;
      for (const auto& [name, value] : v.ns().entries) {
        put(first ? "'" : ", '");
        first = false;
        put(name);
        put("': ");
        repr(out, value);
      }
      put("}>");
      return;
    }
    case Kind::kLoop:
      put(fmt::format("<LoopContext {}/{}>", v.loop().index0 + 1, v.loop().items.size()));
      return;
    case Kind::kFunction:
      put(fmt::format("<function {}>", v.function().name));
      return;
  }
}

bool Interpreter::equal(const Value& a, const Value& b) {
  charge(1);
  if (a.is_number() && b.is_number()) {
    if (a.is(Kind::kFloat) || b.is(Kind::kFloat)) return a.as_double() == b.as_double();
    return a.as_int() == b.as_int();
  }
  if (a.kind() != b.kind()) return false;
  const Nesting nesting(*this);
  switch (a.kind()) {
    case Kind::kUndefined:
    case Kind::kNone:
      return true;
    case Kind::kString:
      if (a.text().size() == b.text().size()) charge_bytes(a.text().size());
      return a.text().view() == b.text().view();
    case Kind::kList:
    case Kind::kTuple: {
      const auto &x = a.list().items, &y = b.list().items;
      if (x.size() != y.size()) return false;
      for (size_t i = 0; i < x.size(); ++i)
        if (!equal(x[i], y[i])) return false;
      return true;
    }
    case Kind::kDict: {
      if (a.dict().entries.size() != b.dict().entries.size()) return false;
      for (const auto& [key, value] : a.dict().entries) {
        const Value* other = b.dict().find(key);
        if (!other || !equal(value, *other)) return false;
      }
      return true;
    }
    default:
      return a.identity() == b.identity();
  }
}

bool Interpreter::less(const Value& a, const Value& b) {
  charge(1);
  require_defined(a);
  require_defined(b);
  if (a.is_number() && b.is_number()) {
    if (a.is(Kind::kFloat) || b.is(Kind::kFloat)) return a.as_double() < b.as_double();
    return a.as_int() < b.as_int();
  }
  if (a.is(Kind::kString) && b.is(Kind::kString)) {
    charge_bytes(std::min(a.text().size(), b.text().size()));
    return a.text().view() < b.text().view();  // UTF-8 sorts like code points
  }
  if (a.is_sequence() && a.kind() == b.kind()) {
    const Nesting nesting(*this);
    const auto &x = a.list().items, &y = b.list().items;
    for (size_t i = 0; i < std::min(x.size(), y.size()); ++i)
      if (!equal(x[i], y[i])) return less(x[i], y[i]);
    return x.size() < y.size();
  }
  fail(fmt::format("{} and {} cannot be ordered", type_name(a), type_name(b)));
}

bool Interpreter::contains(const Value& container, const Value& item) {
  charge(1);
  switch (container.kind()) {
    case Kind::kUndefined:
      return false;
    case Kind::kString: {
      if (!item.is(Kind::kString)) {
        require_defined(item);
        fail(fmt::format("'in' a str needs a str on its left, found {}", type_name(item)));
      }
      charge_bytes(container.text().size());
      return find_bytes(container.text().view(), item.text().view(), 0) != std::string::npos;
    }
    case Kind::kList:
    case Kind::kTuple:
      return std::any_of(container.list().items.begin(), container.list().items.end(),
                         [&](const Value& v) { return equal(v, item); });
    case Kind::kDict:
      return container.dict().find(item) != nullptr;
    default:
      fail(fmt::format("'in' cannot search a {}", type_name(container)));
  }
}

std::vector<Value> Interpreter::iterate(const Value& v) {
  switch (v.kind()) {
    case Kind::kUndefined:
      return {};
    case Kind::kList:
    case Kind::kTuple:
      charge(v.list().items.size());
      return v.list().items;
    case Kind::kDict: {
      charge(v.dict().entries.size());
      std::vector<Value> keys;
      for (const auto& [key, value] : v.dict().entries)
        keys.push_back(key);
      return keys;
    }
    case Kind::kString: {
      std::vector<Value> chars;
      const Text& text = v.text();
      for (size_t p = 0; p < text.size();) {
        const size_t begin = p;
        next_char(text.view(), p);
        charge(1);
        chars.push_back(string(text.substr(begin, p)));
      }
      return chars;
    }
    default:
      fail(fmt::format("a {} cannot be iterated over", type_name(v)));
  }
}

int64_t Interpreter::length(const Value& v) {
  switch (v.kind()) {
    case Kind::kUndefined:
      return 0;
    case Kind::kString:
      charge_bytes(v.text().size());
      return static_cast<int64_t>(count_chars(v.text().view()));
    case Kind::kList:
    case Kind::kTuple:
      return static_cast<int64_t>(v.list().items.size());
    case Kind::kDict:
      return static_cast<int64_t>(v.dict().entries.size());
    case Kind::kLoop:
      return static_cast<int64_t>(v.loop().items.size());
    default:
      fail(fmt::format("a {} has no length", type_name(v)));
  }
}

namespace {
std::string_view op_text(Op op) {
  switch (op) {
    case Op::kAdd:
      return "+";
    case Op::kSub:
      return "-";
    case Op::kMul:
      return "*";
    case Op::kDiv:
      return "/";
    case Op::kFloorDiv:
      return "//";
    case Op::kMod:
      return "%";
    case Op::kPow:
      return "**";
    default:
      return "~";
  }
}
}  // namespace

void Interpreter::bad_operands(Op op, const Value& a, const Value& b) const {
  require_defined(a);
  require_defined(b);
  fail(
      fmt::format("'{}' does not work between {} and {}", op_text(op), type_name(a), type_name(b)));
}

Value Interpreter::repeat(const Value& v, int64_t count) {
  const size_t n = count > 0 ? static_cast<size_t>(count) : 0;
  const size_t unit =
      v.is(Kind::kString) ? v.text().heap_bytes() : v.list().items.size() * sizeof(Value);
  if (unit > 0 && n > SIZE_MAX / 2 / unit) budget_.reserve(SIZE_MAX / 2);
  budget_.reserve(n * unit);
  if (v.is(Kind::kString)) {
    Text text;
    if (unit > 0) {
      charge_bytes(n * unit);
      charge(n);
      for (size_t i = 0; i < n; ++i)
        text.append(v.text());
    }
    return string(std::move(text));
  }
  std::vector<Value> items;
  if (unit > 0) {
    charge(n * v.list().items.size());
    items.reserve(n * v.list().items.size());
    for (size_t i = 0; i < n; ++i)
      items.insert(items.end(), v.list().items.begin(), v.list().items.end());
  }
  return v.is(Kind::kList) ? list(std::move(items)) : tuple(std::move(items));
}

Value Interpreter::binary(Op op, const Value& a, const Value& b) {
  if (op == Op::kConcat) {
    Text text = to_text(a);
    const Text right = to_text(b);
    charge_bytes(text.size() + right.size());
    text.append(right);
    return string(std::move(text));
  }
  if (a.is_number() && b.is_number()) return arithmetic(op, a, b);
  if (op == Op::kAdd && a.kind() == b.kind()) {
    if (a.is(Kind::kString)) {
      charge_bytes(a.text().size() + b.text().size());
      budget_.reserve(a.text().heap_bytes() + b.text().heap_bytes());
      Text text = a.text();
      text.append(b.text());
      return string(std::move(text));
    }
    if (a.is_sequence()) {
      const auto &x = a.list().items, &y = b.list().items;
      charge(x.size() + y.size());
      budget_.reserve((x.size() + y.size()) * sizeof(Value));
      std::vector<Value> items = x;
      items.insert(items.end(), y.begin(), y.end());
      return a.is(Kind::kList) ? list(std::move(items)) : tuple(std::move(items));
    }
  }
  const auto repeatable = [](const Value& v) { return v.is(Kind::kString) || v.is_sequence(); };
  if (op == Op::kMul && repeatable(a) && b.is_integral()) return repeat(a, b.as_int());
  if (op == Op::kMul && repeatable(b) && a.is_integral()) return repeat(b, a.as_int());
  if (op == Op::kMod && a.is(Kind::kString)) return string(percent_format(*this, a.text(), b));
  bad_operands(op, a, b);
}

Value Interpreter::arithmetic(Op op, const Value& a, const Value& b) {
  const auto overflow = [&]() {
    fail(fmt::format("integer overflow: {} {} {} does not fit into 64 bits", a.as_int(),
                     op_text(op), b.as_int()));
  };
  const bool integral = a.is_integral() && b.is_integral();
  const auto zero = [&] {
    if (b.as_double() == 0) fail("division by zero");
  };
  if (integral && op != Op::kDiv && !(op == Op::kPow && b.as_int() < 0)) {
    const int64_t x = a.as_int(), y = b.as_int();
    int64_t r = 0;
    switch (op) {
      case Op::kAdd:
        if (__builtin_add_overflow(x, y, &r)) overflow();
        break;
      case Op::kSub:
        if (__builtin_sub_overflow(x, y, &r)) overflow();
        break;
      case Op::kMul:
        if (__builtin_mul_overflow(x, y, &r)) overflow();
        break;
      case Op::kFloorDiv:
        zero();
        if (x == INT64_MIN && y == -1) overflow();
        r = x / y - (x % y != 0 && (x < 0) != (y < 0));
        break;
      case Op::kMod:
        zero();
        r = y == -1 ? 0 : x % y;
        if (r != 0 && (r < 0) != (y < 0)) r += y;
        break;
      case Op::kPow: {
        // By squaring; the square is only needed while exponent bits remain.
        int64_t base = x;
        r = 1;
        for (int64_t e = y; e > 0;) {
          if ((e & 1) && __builtin_mul_overflow(r, base, &r)) overflow();
          e >>= 1;
          if (e > 0 && __builtin_mul_overflow(base, base, &base)) overflow();
        }
        break;
      }
      default:
        bad_operands(op, a, b);
    }
    return Value::integer(r);
  }
  const double x = a.as_double(), y = b.as_double();
  switch (op) {
    case Op::kAdd:
      return Value::floating(x + y);
    case Op::kSub:
      return Value::floating(x - y);
    case Op::kMul:
      return Value::floating(x * y);
    case Op::kDiv:
      zero();
      return Value::floating(x / y);
    case Op::kFloorDiv:
    case Op::kMod: {
      zero();
      // CPython's float_divmod: exact remainder first, then the matching quotient.
      double mod = std::fmod(x, y);
      double div = (x - mod) / y;
      if (mod != 0) {
        if ((y < 0) != (mod < 0)) {
          mod += y;
          div -= 1;
        }
      } else {
        mod = std::copysign(0.0, y);
      }
      if (op == Op::kMod) return Value::floating(mod);
      if (div == 0) return Value::floating(std::copysign(0.0, x / y));
      double floored = std::floor(div);
      if (div - floored > 0.5) floored += 1;
      return Value::floating(floored);
    }
    case Op::kPow: {
      if (x == 0 && y < 0) fail("zero cannot be raised to a negative power");
      const double r = std::pow(x, y);
      if (std::isnan(r) && !std::isnan(x) && !std::isnan(y)) fail("the power is a complex number");
      if (std::isinf(r) && std::isfinite(x) && std::isfinite(y)) fail("the power is too large");
      return Value::floating(r);
    }
    default:
      bad_operands(op, a, b);
  }
}

std::vector<const Value*> bind(const Interpreter& in, std::string_view function,
                               const Arguments& args, std::initializer_list<std::string_view> names,
                               size_t required) {
  std::vector<const Value*> result(names.size(), nullptr);
  if (args.positional.size() > names.size())
    in.fail(fmt::format("{}() takes at most {} arguments, {} were given", function, names.size(),
                        args.positional.size()));
  for (size_t i = 0; i < args.positional.size(); ++i)
    result[i] = &args.positional[i];
  for (const auto& [name, value] : args.named) {
    const auto it = std::find(names.begin(), names.end(), name);
    if (it == names.end())
      in.fail(fmt::format("{}() has no parameter {}", function, quote_text(name, 40)));
    const size_t i = static_cast<size_t>(it - names.begin());
    if (result[i])
      in.fail(fmt::format("{}() got two values for {}", function, quote_text(name, 40)));
    result[i] = &value;
  }
  for (size_t i = 0; i < required; ++i)
    if (!result[i])
      in.fail(
          fmt::format("{}() needs the argument {}", function, quote_text(names.begin()[i], 40)));
  return result;
}

int64_t int_argument(const Interpreter& in, const Value* value, int64_t fallback,
                     std::string_view name) {
  if (!value) return fallback;
  in.require_defined(*value);
  if (!value->is_integral())
    in.fail(fmt::format("the argument {} must be an int, found {}", quote_text(name, 40),
                        type_name(*value)));
  return value->as_int();
}

const Text& text_argument(const Interpreter& in, const Value& value, std::string_view name) {
  in.require_defined(value);
  if (!value.is(Kind::kString))
    in.fail(fmt::format("the argument {} must be a str, found {}", quote_text(name, 40),
                        type_name(value)));
  return value.text();
}

}  // namespace ts::jinja
