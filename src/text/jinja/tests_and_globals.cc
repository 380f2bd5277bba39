// Jinja's tests ("is ...") and the global functions of chat templates.
#include <ctime>
#include <unordered_map>

#include <fmt/format.h>

#include "base/quote_text.h"
#include "text/jinja/string_operations.h"

namespace ts::jinja {
namespace {

using In = Interpreter&;

void no_arguments(In in, Arguments& args) {
  bind(in, "the test", args, {});
}

template <Kind... kKinds>
bool kind_test(In in, const Value& v, Arguments& args) {
  no_arguments(in, args);
  return ((v.kind() == kKinds) || ...);
}

bool defined_test(In in, const Value& v, Arguments& args) {
  no_arguments(in, args);
  return !v.is(Kind::kUndefined);
}

template <bool kWanted>
bool bool_test(In in, const Value& v, Arguments& args) {
  no_arguments(in, args);
  return v.is(Kind::kBool) && (v.as_int() != 0) == kWanted;
}

bool number_test(In in, const Value& v, Arguments& args) {
  no_arguments(in, args);
  return v.is_number();
}

bool remainder_is(In in, const Value& v, const Value& divisor, int64_t remainder) {
  in.require_defined(v);
  if (!v.is_number()) in.fail(fmt::format("the test needs a number, found {}", type_name(v)));
  return in.equal(in.binary(Op::kMod, v, divisor), Value::integer(remainder));
}
bool odd_test(In in, const Value& v, Arguments& args) {
  no_arguments(in, args);
  return remainder_is(in, v, Value::integer(2), 1);
}
bool even_test(In in, const Value& v, Arguments& args) {
  no_arguments(in, args);
  return remainder_is(in, v, Value::integer(2), 0);
}
bool divisible_test(In in, const Value& v, Arguments& args) {
  const auto a = bind(in, "divisibleby", args, {"num"}, 1);
  return remainder_is(in, v, *a[0], 0);
}

template <bool kUpper>
bool case_test(In in, const Value& v, Arguments& args) {
  no_arguments(in, args);
  const Value text = in.string(in.to_text(v));
  Arguments none;
  return in.truthy(find_method(Kind::kString, kUpper ? "isupper" : "islower")(in, text, none));
}

template <Op kOp>
bool compare_test(In in, const Value& v, Arguments& args) {
  const auto a = bind(in, "the test", args, {"other"}, 1);
  const Value& b = *a[0];
  switch (kOp) {
    case Op::kEq:
      return in.equal(v, b);
    case Op::kNe:
      return !in.equal(v, b);
    case Op::kLt:
      return in.less(v, b);
    case Op::kLe:
      return in.less(v, b) || in.equal(v, b);
    case Op::kGt:
      return in.less(b, v);
    case Op::kGe:
      return in.less(b, v) || in.equal(v, b);
    default:
      return in.contains(b, v);
  }
}

bool sameas_test(In in, const Value& v, Arguments& args) {
  const auto a = bind(in, "sameas", args, {"other"}, 1);
  if (v.kind() != a[0]->kind()) return false;
  if (v.identity() || a[0]->identity()) return v.identity() == a[0]->identity();
  return in.equal(v, *a[0]);
}

bool filter_test(In in, const Value& v, Arguments& args) {
  no_arguments(in, args);
  return v.is(Kind::kString) && find_filter(v.text().view()) != nullptr;
}
bool test_test(In in, const Value& v, Arguments& args) {
  no_arguments(in, args);
  return v.is(Kind::kString) && find_test(v.text().view()) != nullptr;
}
bool escaped_test(In in, const Value&, Arguments& args) {
  no_arguments(in, args);
  return false;  // there is no automatic escaping
}

// Globals -----------------------------------------------------------------------------------------

Value raise_global(In in, const Value&, Arguments& args) {
  const auto a = bind(in, "raise_exception", args, {"message"}, 1);
  in.refuse(in.to_text(*a[0]).view());
}

Value strftime_global(In in, const Value&, Arguments& args) {
  const auto a = bind(in, "strftime_now", args, {"format"}, 1);
  const Text& format = text_argument(in, *a[0], "format");
  if (format.size() > 1000) in.fail("strftime_now: the format is longer than 1000 bytes");
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  // A character of our own at the end tells an empty result from one that did not fit.
  const std::string marked = format.bytes() + "|";
  std::string buffer(64 * 1024, '\0');
  const size_t n = std::strftime(buffer.data(), buffer.size(), marked.c_str(), &local);
  if (n == 0) in.fail("strftime_now: the result is too long");
  const std::string result = buffer.substr(0, n - 1);
  if (find_invalid_utf8(result) != std::string_view::npos)
    in.fail("strftime_now: the result is not UTF-8");
  return in.string(result, format.any_untrusted());
}

Value range_global(In in, const Value&, Arguments& args) {
  const auto a = bind(in, "range", args, {"start", "stop", "step"}, 1);
  int64_t start = 0, stop = int_argument(in, a[0], 0, "stop");
  if (a[1]) {
    start = stop;
    stop = int_argument(in, a[1], 0, "stop");
  }
  const int64_t step = int_argument(in, a[2], 1, "step");
  if (step == 0) in.fail("range(): the step is 0");
  // The limit of Jinja's sandbox.
  constexpr uint64_t kMaxRange = 100'000;
  uint64_t n = 0;
  if (step > 0 ? start < stop : start > stop) {
    const uint64_t distance = step > 0 ? static_cast<uint64_t>(stop) - static_cast<uint64_t>(start)
                                       : static_cast<uint64_t>(start) - static_cast<uint64_t>(stop);
    const uint64_t stride =
        step > 0 ? static_cast<uint64_t>(step) : 0 - static_cast<uint64_t>(step);
    n = (distance - 1) / stride + 1;
  }
  if (n > kMaxRange)
    throw ResourceExhausted(
        fmt::format("chat template: range() of {} numbers, at most {} are allowed", n, kMaxRange));
  in.charge(n);
  std::vector<Value> items;
  items.reserve(n);
  for (uint64_t i = 0; i < n; ++i)
    items.push_back(Value::integer(
        static_cast<int64_t>(static_cast<uint64_t>(start) + i * static_cast<uint64_t>(step))));
  return in.list(std::move(items));
}

/// The entries dict(...) and namespace(...) are made from.
std::vector<std::pair<Value, Value>> initial_entries(In in, std::string_view name,
                                                     Arguments& args) {
  std::vector<std::pair<Value, Value>> entries;
  if (args.positional.size() > 1)
    in.fail(fmt::format("{}() takes at most one positional argument", name));
  if (!args.positional.empty()) {
    const Value& source = args.positional[0];
    in.require_defined(source);
    if (source.is(Kind::kDict)) {
      in.charge(source.dict().entries.size());
      entries = source.dict().entries;
    } else {
      for (const Value& pair : in.iterate(source)) {
        const std::vector<Value> two = in.iterate(pair);
        if (two.size() != 2) in.fail(fmt::format("{}() needs pairs of key and value", name));
        entries.emplace_back(two[0], two[1]);
      }
    }
  }
  for (auto& [key, value] : args.named)
    entries.emplace_back(in.string(key), value);
  return entries;
}

Value dict_global(In in, const Value&, Arguments& args) {
  auto dict = std::make_shared<Dict>(in.budget());
  for (auto& [key, value] : initial_entries(in, "dict", args)) {
    try {
      dict->set(key, value);
    } catch (const std::invalid_argument& type) {
      in.fail(fmt::format("a {} cannot be a dict key", type.what()));
    }
  }
  return Value::object(Kind::kDict, std::move(dict));
}

Value namespace_global(In in, const Value&, Arguments& args) {
  auto ns = std::make_shared<Namespace>(in.budget());
  for (auto& [key, value] : initial_entries(in, "namespace", args))
    ns->set(text_argument(in, key, "name").view(), value);
  return Value::object(Kind::kNamespace, std::move(ns));
}

Value joiner_global(In in, const Value&, Arguments& args) {
  const auto a = bind(in, "joiner", args, {"sep"});
  const Value separator = a[0] ? *a[0] : in.string(", ");
  return in.function("joiner",
                     [used = false](Interpreter& i, Function& self, Arguments& call) mutable {
                       bind(i, "joiner", call, {});
                       return std::exchange(used, true) ? self.held[0] : i.string(Text());
                     },
                     {separator});
}

Value cycler_global(In in, const Value&, Arguments& args) {
  if (args.positional.empty() || !args.named.empty())
    in.fail("cycler() needs values to choose from");
  const auto items = args.positional;
  auto ns = std::make_shared<Namespace>(in.budget());
  // The functions may outlive the cycler they belong to.
  const auto state = std::make_shared<std::pair<size_t, std::weak_ptr<Namespace>>>(0, ns);
  const auto show_current = [state](const Function& self) {
    if (const auto cycler = state->second.lock()) cycler->set("current", self.held[state->first]);
  };
  ns->set("next", in.function(
                      "next",
                      [state, show_current](Interpreter& i, Function& self, Arguments& call) {
                        bind(i, "next", call, {});
                        const Value value = self.held[state->first];
                        state->first = (state->first + 1) % self.held.size();
                        show_current(self);
                        return value;
                      },
                      items));
  ns->set("reset", in.function(
                       "reset",
                       [state, show_current](Interpreter& i, Function& self, Arguments& call) {
                         bind(i, "reset", call, {});
                         state->first = 0;
                         show_current(self);
                         return Value::none();
                       },
                       items));
  ns->set("current", items[0]);
  return Value::object(Kind::kNamespace, std::move(ns));
}

}  // namespace

Test find_test(std::string_view name) {
  static const std::unordered_map<std::string_view, Test> tests = {
      {"boolean", kind_test<Kind::kBool>},
      {"callable", kind_test<Kind::kFunction>},
      {"defined", defined_test},
      {"divisibleby", divisible_test},
      {"eq", compare_test<Op::kEq>},
      {"equalto", compare_test<Op::kEq>},
      {"==", compare_test<Op::kEq>},
      {"escaped", escaped_test},
      {"even", even_test},
      {"false", bool_test<false>},
      {"filter", filter_test},
      {"float", kind_test<Kind::kFloat>},
      {"ge", compare_test<Op::kGe>},
      {">=", compare_test<Op::kGe>},
      {"gt", compare_test<Op::kGt>},
      {"greaterthan", compare_test<Op::kGt>},
      {">", compare_test<Op::kGt>},
      {"in", compare_test<Op::kIn>},
      {"integer", kind_test<Kind::kInt>},
      // As in Jinja, an undefined value passes for an empty sequence.
      {"iterable", kind_test<Kind::kString, Kind::kList, Kind::kTuple, Kind::kDict,
                             Kind::kUndefined, Kind::kLoop>},
      {"le", compare_test<Op::kLe>},
      {"<=", compare_test<Op::kLe>},
      {"lower", case_test<false>},
      {"lt", compare_test<Op::kLt>},
      {"lessthan", compare_test<Op::kLt>},
      {"<", compare_test<Op::kLt>},
      {"mapping", kind_test<Kind::kDict>},
      {"ne", compare_test<Op::kNe>},
      {"!=", compare_test<Op::kNe>},
      {"none", kind_test<Kind::kNone>},
      {"number", number_test},
      {"odd", odd_test},
      {"sameas", sameas_test},
      {"sequence",
       kind_test<Kind::kString, Kind::kList, Kind::kTuple, Kind::kDict, Kind::kUndefined>},
      {"string", kind_test<Kind::kString>},
      {"test", test_test},
      {"true", bool_test<true>},
      {"undefined", kind_test<Kind::kUndefined>},
      {"upper", case_test<true>},
  };
  const auto it = tests.find(name);
  return it == tests.end() ? nullptr : it->second;
}

bool Interpreter::test(std::string_view name, const Value& input, Arguments& args) {
  const Test found = find_test(name);
  if (!found) fail(fmt::format("unknown test {}", quote_text(name, 40)));
  return found(*this, input, args);
}

Builtin find_global(std::string_view name) {
  static const std::unordered_map<std::string_view, Builtin> globals = {
      {"raise_exception", raise_global}, {"strftime_now", strftime_global},
      {"range", range_global},           {"dict", dict_global},
      {"namespace", namespace_global},   {"joiner", joiner_global},
      {"cycler", cycler_global}};
  const auto it = globals.find(name);
  return it == globals.end() ? nullptr : it->second;
}

}  // namespace ts::jinja
