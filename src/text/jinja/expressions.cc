// Evaluation of expressions.
#include <algorithm>

#include <fmt/format.h>

#include "base/quote_text.h"
#include "text/jinja/interpreter.h"

namespace ts::jinja {

Value Interpreter::evaluate(const Expr& e) {
  charge(1);
  const Nesting nesting(*this);
  switch (e.kind) {
    case Expr::Kind::kNone:
      return Value::none();
    case Expr::Kind::kBool:
      return Value::boolean(e.integer != 0);
    case Expr::Kind::kInt:
      return Value::integer(e.integer);
    case Expr::Kind::kFloat:
      return Value::floating(e.number);
    case Expr::Kind::kString:
      charge_bytes(e.name.size());
      return string(e.name);
    case Expr::Kind::kName:
      at_ = e.at;
      return lookup(e.name);
    case Expr::Kind::kList:
    case Expr::Kind::kTuple: {
      std::vector<Value> items;
      items.reserve(e.items.size());
      for (const Expr* item : e.items)
        items.push_back(evaluate(*item));
      return e.kind == Expr::Kind::kList ? list(std::move(items)) : tuple(std::move(items));
    }
    case Expr::Kind::kDict: {
      auto dict = std::make_shared<Dict>(budget_);
      for (size_t i = 0; i + 1 < e.items.size(); i += 2) {
        Value key = evaluate(*e.items[i]);
        Value value = evaluate(*e.items[i + 1]);
        at_ = e.at;
        try {
          dict->set(std::move(key), std::move(value));
        } catch (const std::invalid_argument& type) {
          fail(fmt::format("a {} cannot be a dict key", type.what()));
        }
      }
      return Value::object(Kind::kDict, std::move(dict));
    }
    case Expr::Kind::kChain:
      return evaluate_chain(e);
    case Expr::Kind::kCompare:
      return evaluate_compare(e);
    case Expr::Kind::kNot:
      return Value::boolean(!truthy(evaluate(*e.items[0])));
    case Expr::Kind::kNegate:
    case Expr::Kind::kPlus: {
      const Value v = evaluate(*e.items[0]);
      at_ = e.at;
      require_defined(v);
      if (!v.is_number()) fail(fmt::format("bad operand of unary -: {}", type_name(v)));
      if (e.kind == Expr::Kind::kPlus) return v.is(Kind::kFloat) ? v : Value::integer(v.as_int());
      if (v.is(Kind::kFloat)) return Value::floating(-v.as_double());
      return binary(Op::kSub, Value::integer(0), v);
    }
    case Expr::Kind::kConditional:
      if (truthy(evaluate(*e.items[1]))) return evaluate(*e.items[0]);
      if (e.items[2]) return evaluate(*e.items[2]);
      return undefined("the conditional expression without 'else' is undefined here");
    case Expr::Kind::kAttribute: {
      const Value object = evaluate(*e.items[0]);
      at_ = e.at;
      return attribute(object, e.name);
    }
    case Expr::Kind::kSubscript: {
      const Value object = evaluate(*e.items[0]);
      const Value key = evaluate(*e.items[1]);
      at_ = e.at;
      return item(object, key);
    }
    case Expr::Kind::kSlice:
      return evaluate_slice(e);
    case Expr::Kind::kCall:
      return evaluate_call(e);
    case Expr::Kind::kFilter: {
      // "default" must see undefined values; every other filter gets what it gets.
      const Value input = evaluate(*e.items[0]);
      Arguments args = arguments(e);
      at_ = e.at;
      return filter(e.name, input, args);
    }
    case Expr::Kind::kTest: {
      const Value input = evaluate(*e.items[0]);
      Arguments args = arguments(e);
      at_ = e.at;
      return Value::boolean(test(e.name, input, args));
    }
  }
  throw InternalError("chat template: unknown expression");
}

Value Interpreter::lookup(const std::string& name) {
  for (const Scope* s = scope_.get(); s; s = s->parent.get())
    if (const Value* v = s->find(name)) return *v;
  if (const Builtin global = find_global(name))
    return function(name, [global](Interpreter& in, Function&, Arguments& arguments) {
      return global(in, Value(), arguments);
    });
  return undefined(fmt::format("{} is undefined", quote_text(name, 60)));
}

Value Interpreter::evaluate_chain(const Expr& e) {
  Value value = evaluate(*e.items[0]);
  for (size_t i = 0; i < e.ops.size(); ++i) {
    const Op op = e.ops[i];
    if (op == Op::kAnd || op == Op::kOr) {
      if (truthy(value) == (op == Op::kOr)) return value;
      value = evaluate(*e.items[i + 1]);
      continue;
    }
    const Value right = evaluate(*e.items[i + 1]);
    at_ = e.at;
    value = binary(op, value, right);
  }
  return value;
}

bool Interpreter::compare(Op op, const Value& a, const Value& b) {
  switch (op) {
    case Op::kEq:
      return equal(a, b);
    case Op::kNe:
      return !equal(a, b);
    case Op::kLt:
      return less(a, b);
    case Op::kGt:
      return less(b, a);
    // Not the negation of the opposite: a NaN is neither.
    case Op::kLe:
      return less(a, b) || equal(a, b);
    case Op::kGe:
      return less(b, a) || equal(a, b);
    case Op::kIn:
      return contains(b, a);
    case Op::kNotIn:
      return !contains(b, a);
    default:
      throw InternalError("chat template: unknown comparison");
  }
}

Value Interpreter::evaluate_compare(const Expr& e) {
  Value left = evaluate(*e.items[0]);
  for (size_t i = 0; i < e.ops.size(); ++i) {
    Value right = evaluate(*e.items[i + 1]);
    at_ = e.at;
    if (!compare(e.ops[i], left, right)) return Value::boolean(false);
    left = std::move(right);
  }
  return Value::boolean(true);
}

Arguments Interpreter::arguments(const Expr& e) {
  Arguments result;
  for (const Expr* a : e.arguments)
    result.positional.push_back(evaluate(*a));
  for (const auto& [name, a] : e.named_arguments) {
    for (const auto& [other, value] : result.named)
      if (other == name) fail(fmt::format("argument {} is given twice", quote_text(name, 40)));
    result.named.emplace_back(name, evaluate(*a));
  }
  if (e.star_arguments) {
    const Value star = evaluate(*e.star_arguments);
    at_ = e.at;
    for (Value& v : iterate(star))
      result.positional.push_back(std::move(v));
  }
  if (e.star_named_arguments) {
    const Value star = evaluate(*e.star_named_arguments);
    at_ = e.at;
    if (!star.is(Kind::kDict)) fail(fmt::format("** needs a dict, found {}", type_name(star)));
    charge(star.dict().entries.size());
    for (const auto& [key, value] : star.dict().entries)
      result.named.emplace_back(text_argument(*this, key, "**").bytes(), value);
  }
  return result;
}

Value Interpreter::evaluate_call(const Expr& e) {
  const Expr& callee = *e.items[0];
  if (callee.kind == Expr::Kind::kAttribute) {
    // A method is called on its object directly, and wins over a dict's key of the same name.
    const Value object = evaluate(*callee.items[0]);
    Arguments args = arguments(e);
    at_ = e.at;
    if (const Builtin method = find_method(object.kind(), callee.name))
      return method(*this, object, args);
    return call(attribute(object, callee.name), args);
  }
  const Value function = evaluate(callee);
  Arguments args = arguments(e);
  at_ = e.at;
  return call(function, args);
}

Value Interpreter::call(const Value& callee, Arguments& args) {
  require_defined(callee);
  if (!callee.is(Kind::kFunction)) fail(fmt::format("a {} cannot be called", type_name(callee)));
  const Nesting nesting(*this);
  const Value keep = callee;  // the call may drop the last other reference
  return keep.function().body(*this, keep.function(), args);
}

Value Interpreter::evaluate_filters(const Expr* e, Value input) {
  std::vector<const Expr*> chain;
  for (; e; e = e->items[0])
    chain.push_back(e);
  for (auto it = chain.rbegin(); it != chain.rend(); ++it) {
    Arguments args = arguments(**it);
    at_ = (*it)->at;
    input = filter((*it)->name, input, args);
  }
  return input;
}

Value Interpreter::evaluate_slice(const Expr& e) {
  const Value object = evaluate(*e.items[0]);
  Value parts[3];
  for (size_t i = 0; i < 3; ++i)
    parts[i] = e.items[i + 1] ? evaluate(*e.items[i + 1]) : Value::none();
  at_ = e.at;
  require_defined(object);
  const bool is_text = object.is(Kind::kString);
  if (!is_text && !object.is_sequence())
    fail(fmt::format("a {} cannot be sliced", type_name(object)));
  for (const Value& part : parts) {
    require_defined(part);
    if (!part.is(Kind::kNone) && !part.is_integral())
      fail(fmt::format("a slice index must be an int or none, found {}", type_name(part)));
  }
  const int64_t size = length(object);
  const int64_t step = parts[2].is(Kind::kNone) ? 1 : parts[2].as_int();
  if (step == 0) fail("the step of a slice cannot be 0");
  // Python's rule: negative indices count from the end; then both are clamped.
  const auto index = [&](const Value& v, int64_t fallback) {
    if (v.is(Kind::kNone)) return fallback;
    int64_t i = v.as_int();
    if (i < 0) i += size;  // cannot overflow: size >= 0
    return step > 0 ? std::clamp<int64_t>(i, 0, size) : std::clamp<int64_t>(i, -1, size - 1);
  };
  const int64_t start = index(parts[0], step > 0 ? 0 : size - 1);
  const int64_t stop = index(parts[1], step > 0 ? size : -1);

  std::vector<int64_t> taken;
  if (!(is_text && step == 1)) {
    for (int64_t i = start; step > 0 ? i < stop : i > stop;) {
      charge(1);
      taken.push_back(i);
      if (step > 0 ? step >= stop - i : step <= stop - i) break;
      i += step;
    }
  }
  if (!is_text) {
    std::vector<Value> items;
    items.reserve(taken.size());
    for (const int64_t i : taken)
      items.push_back(object.list().items[static_cast<size_t>(i)]);
    return object.is(Kind::kList) ? list(std::move(items)) : tuple(std::move(items));
  }
  const Text& text = object.text();
  charge_bytes(text.size());
  if (step == 1) {
    if (start >= stop) return string(Text());
    const size_t begin = char_offset(text.view(), static_cast<size_t>(start));
    const size_t n = char_offset(text.view().substr(begin), static_cast<size_t>(stop - start));
    return string(text.substr(begin, begin + n));
  }
  std::vector<size_t> offsets;  // of the characters
  budget_.reserve(text.size() * sizeof(size_t));
  for (size_t p = 0; p < text.size(); next_char(text.view(), p))
    offsets.push_back(p);
  offsets.push_back(text.size());
  Text result;
  for (const int64_t i : taken)
    result.append(text, offsets[static_cast<size_t>(i)], offsets[static_cast<size_t>(i) + 1]);
  return string(std::move(result));
}

Value Interpreter::loop_attribute(const Value& value, std::string_view name) {
  LoopState& loop = value.loop();
  const auto index0 = static_cast<int64_t>(loop.index0);
  const auto size = static_cast<int64_t>(loop.items.size());
  if (name == "index0") return Value::integer(index0);
  if (name == "index") return Value::integer(index0 + 1);
  if (name == "revindex0") return Value::integer(size - index0 - 1);
  if (name == "revindex") return Value::integer(size - index0);
  if (name == "first") return Value::boolean(index0 == 0);
  if (name == "last") return Value::boolean(index0 == size - 1);
  if (name == "length") return Value::integer(size);
  if (name == "depth") return Value::integer(1);  // of recursive loops, which are not supported
  if (name == "depth0") return Value::integer(0);
  if (name == "previtem")
    return index0 > 0 ? loop.items[loop.index0 - 1] : undefined("there is no previous item");
  if (name == "nextitem")
    return index0 + 1 < size ? loop.items[loop.index0 + 1] : undefined("there is no next item");
  if (name == "cycle")
    return function("cycle",
                    [](Interpreter& in, Function& self, Arguments& args) {
                      if (args.positional.empty())
                        in.fail("loop.cycle() needs values to choose from");
                      return args.positional[self.held[0].loop().index0 % args.positional.size()];
                    },
                    {value});
  if (name == "changed")
    return function("changed",
                    [](Interpreter& in, Function& self, Arguments& args) {
                      LoopState& state = self.held[0].loop();
                      for (const Value& v : args.positional)
                        if (in.reaches(v, &state))
                          in.fail("loop.changed() cannot watch its own loop");
                      bool changed = !state.has_last_changed ||
                                     state.last_changed.size() != args.positional.size();
                      for (size_t i = 0; !changed && i < args.positional.size(); ++i)
                        changed = !in.equal(state.last_changed[i], args.positional[i]);
                      state.has_last_changed = true;
                      state.last_changed = args.positional;
                      return Value::boolean(changed);
                    },
                    {value});
  return undefined(fmt::format("'loop' has no attribute {}", quote_text(name, 60)));
}

Value Interpreter::attribute(const Value& object, std::string_view name) {
  require_defined(object);
  if (object.is(Kind::kDict)) {
    if (const Value* v = object.dict().find(name)) return *v;
  } else if (object.is(Kind::kNamespace)) {
    if (const Value* v = object.ns().find(name)) return *v;
  } else if (object.is(Kind::kLoop)) {
    return loop_attribute(object, name);
  }
  if (const Builtin method = find_method(object.kind(), name))
    return function(std::string(name),
                    [method](Interpreter& in, Function& self, Arguments& args) {
                      return method(in, self.held[0], args);
                    },
                    {object});
  return undefined(
      fmt::format("'{}' object has no attribute {}", type_name(object), quote_text(name, 60)));
}

Value Interpreter::item(const Value& object, const Value& key) {
  require_defined(object);
  if (object.is(Kind::kDict)) {
    if (const Value* v = object.dict().find(key)) return *v;
    if (!key.is(Kind::kString)) return undefined(fmt::format("'dict' object has no such key"));
  }
  if (key.is_integral() && (object.is_sequence() || object.is(Kind::kString))) {
    int64_t i = key.as_int();
    const int64_t size = length(object);
    if (i < 0) i += size;
    if (i < 0 || i >= size)
      return undefined(
          fmt::format("'{}' object has no element {}", type_name(object), key.as_int()));
    if (object.is_sequence()) return object.list().items[static_cast<size_t>(i)];
    const Text& text = object.text();
    charge_bytes(2 * text.size());
    const size_t begin = char_offset(text.view(), static_cast<size_t>(i));
    size_t end = begin;
    next_char(text.view(), end);
    return string(text.substr(begin, end));
  }
  if (key.is(Kind::kString)) return attribute(object, key.text().view());
  return undefined(fmt::format("'{}' object has no such element", type_name(object)));
}

}  // namespace ts::jinja
