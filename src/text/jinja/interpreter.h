/// Runs a template: a walk over the syntax tree with limits on steps, memory, output and depth.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <tensorsharp/error.hpp>

#include "text/chat_template.h"
#include "text/jinja/syntax.h"
#include "text/jinja/value.h"

namespace ts::jinja {

/// The template called raise_exception.
class TemplateRefusal : public InvalidArgument {
 public:
  using InvalidArgument::InvalidArgument;
};

/// One level of variables. Emptied when its block ends, so that macros which refer to the level
/// they were defined in do not keep it alive.
struct Scope {
  explicit Scope(std::shared_ptr<Scope> p) : parent(std::move(p)) {}
  const Value* find(std::string_view name) const;
  void set(std::string_view name, Value value);
  std::vector<std::pair<std::string, Value>> variables;
  std::shared_ptr<Scope> parent;
};

class Interpreter {
 public:
  Interpreter(const Syntax& syntax, const TemplateLimits& limits);
  ~Interpreter();
  Interpreter(const Interpreter&) = delete;
  Interpreter& operator=(const Interpreter&) = delete;

  /// Renders with these variables (a JSON object). Names in `trusted` come from the model file, all
  /// others from the request.
  Text render(const nlohmann::ordered_json& variables,
              std::initializer_list<std::string_view> trusted);

  // Values --------------------------------------------------------------------------------------
  Value string(Text text);
  Value string(std::string bytes, bool untrusted = false) {
    return string(Text(std::move(bytes), untrusted));
  }
  Value list(std::vector<Value> items);
  Value tuple(std::vector<Value> items);
  Value undefined(std::string hint);
  Value function(std::string name, Function::Body body, std::vector<Value> held = {});
  Budget& budget() noexcept { return budget_; }

  /// Python's bool(), str(), repr(), ==, iter().
  bool truthy(const Value& value) const;
  Text to_text(const Value& value);
  void repr(Text& out, const Value& value);
  bool equal(const Value& a, const Value& b);
  /// a < b; fails for types without an order.
  bool less(const Value& a, const Value& b);
  bool contains(const Value& container, const Value& item);
  std::vector<Value> iterate(const Value& value);
  int64_t length(const Value& value);
  /// The JSON text of a value as Hugging Face's tojson writes it.
  struct JsonStyle {
    std::optional<std::string> indent;
    std::string item_separator = ", ", key_separator = ": ";
    bool ensure_ascii = false, sort_keys = false;
  };
  void to_json(Text& out, const Value& value, const JsonStyle& style, int level = 0);

  Value binary(Op op, const Value& a, const Value& b);
  /// obj.name and obj[key].
  Value attribute(const Value& object, std::string_view name);
  Value item(const Value& object, const Value& key);
  Value call(const Value& function, Arguments& arguments);
  Value filter(std::string_view name, const Value& input, Arguments& arguments);
  bool test(std::string_view name, const Value& input, Arguments& arguments);

  // Errors and limits ---------------------------------------------------------------------------
  /// FormatError with the position of what is being evaluated.
  [[noreturn]] void fail(std::string_view message) const;
  [[noreturn]] void refuse(std::string_view message) const;
  /// Fails when `value` is undefined, saying which.
  void require_defined(const Value& value) const;
  void charge(uint64_t steps) {
    if (steps > steps_left_) out_of_steps();
    steps_left_ -= steps;
  }
  /// True when `target` is inside `from`.
  bool reaches(const Value& from, const Object* target);
  void charge_bytes(size_t n) { charge(n / 32); }
  /// Guards every recursion.
  class Nesting {
   public:
    explicit Nesting(Interpreter& in) : in_(in) {
      if (++in_.depth_ > in_.limits_.max_depth) in_.too_deep();
    }
    ~Nesting() { --in_.depth_; }
    Nesting(const Nesting&) = delete;
    Nesting& operator=(const Nesting&) = delete;

   private:
    Interpreter& in_;
  };

 private:
  enum class Flow : uint8_t { kNormal, kBreak, kContinue };
  class ScopeGuard;
  class Capture;

  Value from_json(const nlohmann::ordered_json& json, bool untrusted, int depth,
                  const std::string& where);
  Flow run_block(const Block& block);
  Flow run(const Stmt& stmt);
  Flow run_for(const Stmt& stmt);
  void run_call_block(const Stmt& stmt);
  Flow run_with(const Stmt& stmt);
  void assign(const Expr& target, Value value);
  Value macro(const Stmt& stmt, std::string name);
  Value invoke_macro(const Stmt& stmt, const std::string& name,
                     const std::shared_ptr<Scope>& closure, Arguments& arguments);
  void emit(const Text& text);
  void emit(std::string_view trusted);
  void count_output(size_t n);

  Value evaluate(const Expr& expr);
  Value evaluate_chain(const Expr& expr);
  Value evaluate_compare(const Expr& expr);
  bool compare(Op op, const Value& a, const Value& b);
  Value evaluate_call(const Expr& expr);
  Value evaluate_slice(const Expr& expr);
  /// Filters of a filter block over its text.
  Value evaluate_filters(const Expr* expr, Value input);
  Arguments arguments(const Expr& expr);
  Value lookup(const std::string& name);
  Value loop_attribute(const Value& loop, std::string_view name);

  Value arithmetic(Op op, const Value& a, const Value& b);
  Value repeat(const Value& sequence, int64_t count);
  [[noreturn]] void bad_operands(Op op, const Value& a, const Value& b) const;
  [[noreturn]] void out_of_steps() const;
  [[noreturn]] void too_deep() const;

  Budget budget_;  // before everything that holds values
  const Syntax& syntax_;
  const TemplateLimits& limits_;
  uint64_t steps_left_;
  int depth_ = 0;
  Position at_;
  std::shared_ptr<Scope> scope_;
  Text* out_ = nullptr;
  size_t output_bytes_ = 0;  // of all buffers being written
};

/// Arguments by parameter name, null where not given. Fails on unknown, doubled, surplus and (the
/// first `required`) missing ones.
std::vector<const Value*> bind(const Interpreter& in, std::string_view function,
                               const Arguments& arguments,
                               std::initializer_list<std::string_view> names, size_t required = 0);
/// An integer argument, or `fallback` when it was not given.
int64_t int_argument(const Interpreter& in, const Value* value, int64_t fallback,
                     std::string_view name);
/// A str argument; fails for other types.
const Text& text_argument(const Interpreter& in, const Value& value, std::string_view name);

using Builtin = Value (*)(Interpreter&, const Value& self, Arguments&);
/// A method of str, list, tuple or dict; null when there is none of this name.
Builtin find_method(Kind kind, std::string_view name);
Builtin find_filter(std::string_view name);
using Test = bool (*)(Interpreter&, const Value& value, Arguments&);
Test find_test(std::string_view name);
/// A global function (range, namespace, raise_exception, ...); null when there is none.
Builtin find_global(std::string_view name);

/// "%s %d" formatting of Python's str % values.
Text percent_format(Interpreter& in, const Text& format, const Value& values);

}  // namespace ts::jinja
