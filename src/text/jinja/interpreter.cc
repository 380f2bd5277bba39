// Statements, scopes and limits. Expressions are in expressions.cc, Python's operations on values
// in operations.cc.
#include "text/jinja/interpreter.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/quote_text.h"

namespace ts::jinja {

const Value* Scope::find(std::string_view name) const {
  for (const auto& [n, value] : variables)
    if (n == name) return &value;
  return nullptr;
}

void Scope::set(std::string_view name, Value value) {
  for (auto& [n, v] : variables) {
    if (n != name) continue;
    v = std::move(value);
    return;
  }
  variables.emplace_back(std::string(name), std::move(value));
}

/// Enters a new scope for the lifetime of the guard.
class Interpreter::ScopeGuard {
 public:
  explicit ScopeGuard(Interpreter& in) : ScopeGuard(in, in.scope_) {}
  ScopeGuard(Interpreter& in, const std::shared_ptr<Scope>& parent)
      : in_(in), outer_(in.scope_), own_(std::make_shared<Scope>(parent)) {
    in_.scope_ = own_;
  }
  ~ScopeGuard() {
    in_.scope_ = outer_;
    own_->variables.clear();
  }
  ScopeGuard(const ScopeGuard&) = delete;
  ScopeGuard& operator=(const ScopeGuard&) = delete;

 private:
  Interpreter& in_;
  std::shared_ptr<Scope> outer_, own_;
};

/// Sends output into a text of its own for the lifetime of the guard.
class Interpreter::Capture {
 public:
  explicit Capture(Interpreter& in) : in_(in), outer_(in.out_) { in_.out_ = &text_; }
  ~Capture() {
    in_.out_ = outer_;
    in_.output_bytes_ -= counted_ ? text_.size() : 0;
  }
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;
  Text take() {
    in_.output_bytes_ -= text_.size();
    counted_ = false;
    return std::move(text_);
  }

 private:
  Interpreter& in_;
  Text* outer_;
  Text text_;
  bool counted_ = true;
};

Interpreter::Interpreter(const Syntax& syntax, const TemplateLimits& limits)
    : budget_(limits.max_value_bytes),
      syntax_(syntax),
      limits_(limits),
      steps_left_(limits.max_steps),
      scope_(std::make_shared<Scope>(nullptr)) {}

Interpreter::~Interpreter() {
  scope_->variables.clear();
}

Text Interpreter::render(const nlohmann::ordered_json& variables,
                         std::initializer_list<std::string_view> trusted) {
  for (const auto& [name, json] : variables.items()) {
    const bool is_trusted = std::find(trusted.begin(), trusted.end(), name) != trusted.end();
    scope_->set(name, from_json(json, !is_trusted, 0, name));
  }
  // What the template sets must not overwrite what later renderings see; a scope of its own also
  // lets it shadow variables as Jinja does.
  const ScopeGuard guard(*this);
  Capture capture(*this);
  run_block(syntax_.body);
  return capture.take();
}

Value Interpreter::from_json(const nlohmann::ordered_json& json, bool untrusted, int depth,
                             const std::string& where) {
  using Type = nlohmann::ordered_json::value_t;
  charge(1);
  if (depth > limits_.max_depth)
    throw InvalidArgument(
        fmt::format("{}: nested deeper than {} levels", quote_text(where), limits_.max_depth));
  const auto checked = [&](const std::string& text) {
    const size_t bad = find_invalid_utf8(text);
    if (bad != std::string_view::npos)
      throw InvalidArgument(
          fmt::format("{}: byte {} of the text is not UTF-8", quote_text(where), bad));
    return string(text, untrusted);
  };
  switch (json.type()) {
    case Type::boolean:
      return Value::boolean(json.get<bool>());
    case Type::number_integer:
      return Value::integer(json.get<int64_t>());
    case Type::number_unsigned: {
      const uint64_t u = json.get<uint64_t>();
      if (u > static_cast<uint64_t>(INT64_MAX)) return Value::floating(static_cast<double>(u));
      return Value::integer(static_cast<int64_t>(u));
    }
    case Type::number_float:
      return Value::floating(json.get<double>());
    case Type::string:
      return checked(json.get_ref<const std::string&>());
    case Type::array: {
      auto result = std::make_shared<List>(budget_);
      result->from_input = true;
      size_t i = 0;
      for (const auto& element : json)
        result->push(from_json(element, untrusted, depth + 1,
                               depth < 2 ? fmt::format("{}[{}]", where, i++) : where));
      return Value::object(Kind::kList, std::move(result));
    }
    case Type::object: {
      auto result = std::make_shared<Dict>(budget_);
      result->from_input = true;
      for (const auto& [key, element] : json.items())
        result->set(checked(key), from_json(element, untrusted, depth + 1,
                                            depth < 3 ? fmt::format("{}.{}", where, key) : where));
      return Value::object(Kind::kDict, std::move(result));
    }
    default:
      return Value::none();
  }
}

Value Interpreter::string(Text text) {
  return Value::object(Kind::kString, std::make_shared<StringObject>(budget_, std::move(text)));
}

Value Interpreter::list(std::vector<Value> items) {
  auto result = std::make_shared<List>(budget_);
  result->grow(items.size() * sizeof(Value));
  result->items = std::move(items);
  return Value::object(Kind::kList, std::move(result));
}

Value Interpreter::tuple(std::vector<Value> items) {
  return list(std::move(items)).as_tuple();
}

Value Interpreter::undefined(std::string hint) {
  return Value::object(Kind::kUndefined,
                       std::make_shared<UndefinedObject>(budget_, std::move(hint)));
}

Value Interpreter::function(std::string name, Function::Body body, std::vector<Value> held) {
  return Value::object(
      Kind::kFunction,
      std::make_shared<Function>(budget_, std::move(name), std::move(body), std::move(held)));
}

void Interpreter::fail(std::string_view message) const {
  throw FormatError(
      fmt::format("chat template, line {}, column {}: {}", at_.line, at_.column, message));
}

void Interpreter::refuse(std::string_view message) const {
  throw TemplateRefusal(fmt::format("the chat template refuses the request: {}", message));
}

void Interpreter::require_defined(const Value& value) const {
  if (value.is(Kind::kUndefined)) fail(value.undefined_hint());
}

void Interpreter::out_of_steps() const {
  throw ResourceExhausted(
      fmt::format("chat template, line {}: stopped after {} steps, the limit; the template is "
                  "damaged or hostile, or the conversation is too long",
                  at_.line, limits_.max_steps));
}

void Interpreter::too_deep() const {
  throw ResourceExhausted(
      fmt::format("chat template, line {}: nested deeper than {} levels, the limit (a macro that "
                  "calls itself without end, or data nested too deep)",
                  at_.line, limits_.max_depth));
}

void Interpreter::count_output(size_t n) {
  output_bytes_ += n;
  if (output_bytes_ > limits_.max_output_bytes) {
    output_bytes_ -= n;
    throw ResourceExhausted(
        fmt::format("chat template, line {}: the output is longer than {} bytes, the limit",
                    at_.line, limits_.max_output_bytes));
  }
  charge_bytes(n);
}

void Interpreter::emit(const Text& text) {
  count_output(text.size());
  out_->append(text);
}

void Interpreter::emit(std::string_view trusted) {
  count_output(trusted.size());
  out_->append(trusted, false);
}

Interpreter::Flow Interpreter::run_block(const Block& block) {
  for (const Stmt* stmt : block) {
    const Flow flow = run(*stmt);
    if (flow != Flow::kNormal) return flow;
  }
  return Flow::kNormal;
}

Interpreter::Flow Interpreter::run(const Stmt& stmt) {
  charge(1);
  at_ = stmt.at;
  const Nesting nesting(*this);
  switch (stmt.kind) {
    case Stmt::Kind::kText:
      emit(std::string_view(stmt.name));
      return Flow::kNormal;
    case Stmt::Kind::kOutput: {
      const Value value = evaluate(*stmt.value);
      if (value.is(Kind::kString))
        emit(value.text());
      else
        emit(to_text(value));
      return Flow::kNormal;
    }
    case Stmt::Kind::kFor:
      return run_for(stmt);
    case Stmt::Kind::kIf:
      for (const auto& [condition, body] : stmt.branches)
        if (truthy(evaluate(*condition))) return run_block(body);
      return run_block(stmt.orelse);
    case Stmt::Kind::kSet:
      assign(*stmt.target, evaluate(*stmt.value));
      return Flow::kNormal;
    case Stmt::Kind::kSetBlock:
    case Stmt::Kind::kFilter: {
      Value value;
      Flow flow{};
      {
        const ScopeGuard guard(*this);
        Capture capture(*this);
        flow = run_block(stmt.body);
        value = string(capture.take());
      }
      value = evaluate_filters(stmt.value, std::move(value));
      if (stmt.kind == Stmt::Kind::kFilter)
        emit(to_text(value));
      else
        assign(*stmt.target, std::move(value));
      return flow;
    }
    case Stmt::Kind::kMacro:
      scope_->set(stmt.name, macro(stmt, stmt.name));
      return Flow::kNormal;
    case Stmt::Kind::kCallBlock:
      run_call_block(stmt);
      return Flow::kNormal;
    case Stmt::Kind::kWith:
      return run_with(stmt);
    case Stmt::Kind::kScope: {
      const ScopeGuard guard(*this);
      return run_block(stmt.body);
    }
    case Stmt::Kind::kBreak:
      return Flow::kBreak;
    case Stmt::Kind::kContinue:
      return Flow::kContinue;
  }
  throw InternalError("chat template: unknown statement");
}

Interpreter::Flow Interpreter::run_for(const Stmt& stmt) {
  const Value iterable = evaluate(*stmt.value);
  at_ = stmt.at;
  std::vector<Value> items = iterate(iterable);
  if (stmt.condition) {
    std::vector<Value> kept;
    for (Value& item : items) {
      const ScopeGuard guard(*this);
      assign(*stmt.target, item);
      if (truthy(evaluate(*stmt.condition))) kept.push_back(std::move(item));
    }
    items = std::move(kept);
  }
  if (items.empty()) {
    const ScopeGuard guard(*this);
    return run_block(stmt.orelse);
  }
  auto state = std::make_shared<LoopState>(budget_);
  state->grow(items.size() * sizeof(Value));
  state->items = std::move(items);
  const Value loop = Value::object(Kind::kLoop, state);
  Flow flow = Flow::kNormal;
  for (; state->index0 < state->items.size() && flow != Flow::kBreak; ++state->index0) {
    charge(3);  // an iteration, with its scope, takes about as long as three simple nodes
    const ScopeGuard guard(*this);
    scope_->set("loop", loop);
    at_ = stmt.at;
    assign(*stmt.target, state->items[state->index0]);
    flow = run_block(stmt.body);
  }
  return Flow::kNormal;
}

Interpreter::Flow Interpreter::run_with(const Stmt& stmt) {
  std::vector<Value> values;  // evaluated outside of the new scope
  for (const auto& [target, expr] : stmt.assignments)
    values.push_back(evaluate(*expr));
  const ScopeGuard guard(*this);
  for (size_t i = 0; i < values.size(); ++i)
    assign(*stmt.assignments[i].first, std::move(values[i]));
  return run_block(stmt.body);
}

void Interpreter::assign(const Expr& target, Value value) {
  if (target.kind == Expr::Kind::kName) {
    scope_->set(target.name, std::move(value));
    return;
  }
  at_ = target.at;
  if (target.kind == Expr::Kind::kAttribute) {
    const Value ns = lookup(target.items[0]->name);
    if (!ns.is(Kind::kNamespace))
      fail(fmt::format("cannot set an attribute of {}, which is no namespace but {}",
                       quote_text(target.items[0]->name, 40), type_name(ns)));
    if (reaches(value, ns.identity())) fail("a namespace cannot hold itself");
    ns.ns().set(target.name, std::move(value));
    return;
  }
  const std::vector<Value> items = iterate(value);
  if (items.size() != target.items.size())
    fail(fmt::format("cannot unpack {} values into {} names", items.size(), target.items.size()));
  const Nesting nesting(*this);
  for (size_t i = 0; i < items.size(); ++i)
    assign(*target.items[i], items[i]);
}

bool Interpreter::reaches(const Value& from, const Object* target) {
  std::vector<Value> open = {from};
  std::vector<const Object*> seen;
  while (!open.empty()) {
    const Value v = std::move(open.back());
    open.pop_back();
    if (v.identity() == target) return true;
    charge(1);
    if (!v.identity() || v.is(Kind::kString) || v.is(Kind::kUndefined)) continue;
    // Values of the request can neither be changed nor refer to anything made by the template.
    if (v.is_sequence() ? v.list().from_input : v.is(Kind::kDict) && v.dict().from_input) continue;
    if (std::find(seen.begin(), seen.end(), v.identity()) != seen.end()) continue;
    charge(seen.size() / 8);
    seen.push_back(v.identity());
    if (v.is_sequence())
      open.insert(open.end(), v.list().items.begin(), v.list().items.end());
    else if (v.is(Kind::kDict))
      for (const auto& [key, value] : v.dict().entries)
        open.push_back(value);
    else if (v.is(Kind::kNamespace))
      for (const auto& [name, value] : v.ns().entries)
        open.push_back(value);
    else if (v.is(Kind::kFunction))
      open.insert(open.end(), v.function().held.begin(), v.function().held.end());
    else if (v.is(Kind::kLoop))
      for (const auto* part : {&v.loop().items, &v.loop().last_changed})
        open.insert(open.end(), part->begin(), part->end());
    charge(open.size() / 8);
  }
  return false;
}

Value Interpreter::macro(const Stmt& stmt, std::string name) {
  return function(
      name, [&stmt, name, closure = scope_](Interpreter& in, Function&, Arguments& arguments) {
        return in.invoke_macro(stmt, name, closure, arguments);
      });
}

Value Interpreter::invoke_macro(const Stmt& stmt, const std::string& name,
                                const std::shared_ptr<Scope>& closure, Arguments& arguments) {
  const Nesting nesting(*this);
  const MacroSignature& m = stmt.signature;
  const size_t n = m.names.size();
  const size_t n_positional = std::min(n, arguments.positional.size());
  if (arguments.positional.size() > n && !m.uses_varargs)
    fail(fmt::format("macro {} takes {} arguments, {} were given", quote_text(name, 40), n,
                     arguments.positional.size()));
  const ScopeGuard guard(*this, closure);
  std::vector<bool> given(n, false);
  for (size_t i = 0; i < n_positional; ++i) {
    scope_->set(m.names[i], arguments.positional[i]);
    given[i] = true;
  }
  std::vector<Value> rest(arguments.positional.begin() + static_cast<ptrdiff_t>(n_positional),
                          arguments.positional.end());
  auto kwargs = std::make_shared<Dict>(budget_);
  bool has_caller = false;
  for (auto& [key, value] : arguments.named) {
    const auto it = std::find(m.names.begin(), m.names.end(), key);
    if (it != m.names.end()) {
      const size_t i = static_cast<size_t>(it - m.names.begin());
      if (given[i])
        fail(fmt::format("macro {} got two values for {}", quote_text(name, 40),
                         quote_text(key, 40)));
      given[i] = true;
      scope_->set(key, value);
    } else if (key == "caller" && m.uses_caller) {
      has_caller = true;
      scope_->set("caller", value);
    } else if (m.uses_kwargs) {
      kwargs->set(string(key), value);
    } else {
      fail(fmt::format("macro {} has no parameter {}", quote_text(name, 40), quote_text(key, 40)));
    }
  }
  // Defaults see the parameters before them.
  const size_t first_default = n - m.defaults.size();
  for (size_t i = 0; i < n; ++i) {
    if (given[i]) continue;
    scope_->set(m.names[i],
                i >= first_default
                    ? evaluate(*m.defaults[i - first_default])
                    : undefined(fmt::format("parameter {} of macro {} was not given",
                                            quote_text(m.names[i], 40), quote_text(name, 40))));
  }
  if (m.uses_varargs) scope_->set("varargs", tuple(std::move(rest)));
  if (m.uses_kwargs) scope_->set("kwargs", Value::object(Kind::kDict, kwargs));
  if (m.uses_caller && !has_caller &&
      std::find(m.names.begin(), m.names.end(), "caller") == m.names.end())
    scope_->set("caller",
                undefined("there is no caller: the macro was not called by a call block"));
  Capture capture(*this);
  run_block(stmt.body);
  return string(capture.take());
}

void Interpreter::run_call_block(const Stmt& stmt) {
  const Expr& expr = *stmt.value;
  const Value callee = evaluate(*expr.items[0]);
  Arguments args = arguments(expr);
  args.named.emplace_back("caller", macro(stmt, "caller"));
  at_ = stmt.at;
  emit(to_text(call(callee, args)));
}

}  // namespace ts::jinja
