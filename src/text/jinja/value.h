/// Values of the template language: Python's none, bool, int (64 bits), float, str, list, tuple and
/// dict, Jinja's undefined and namespace, and things that can be called.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "text/jinja/text.h"

namespace ts::jinja {

class Interpreter;
class Value;

/// Bytes held by the values of one rendering; throws ResourceExhausted at the limit.
class Budget {
 public:
  explicit Budget(size_t limit) : limit_(limit) {}
  void add(size_t n);
  void sub(size_t n) noexcept { held_ -= n; }
  /// Throws when n more bytes would not fit; for checks before the bytes are made.
  void reserve(size_t n) const;

 private:
  size_t limit_, held_ = 0;
};

/// What a value refers to. Objects hold their share of the budget while they live.
class Object {
 public:
  /// Measured for strings: the object, its reference counts and the allocator's share.
  static constexpr size_t kOverhead = 112;
  Object(Budget& budget, size_t bytes) : budget_(budget) { grow(bytes + kOverhead); }
  virtual ~Object() { budget_.sub(bytes_); }
  Object(const Object&) = delete;
  Object& operator=(const Object&) = delete;
  void grow(size_t n) {
    budget_.add(n);
    bytes_ += n;
  }

 protected:
  Budget& budget_;

 private:
  size_t bytes_ = 0;
};

enum class Kind : uint8_t {
  kUndefined,
  kNone,
  kBool,
  kInt,
  kFloat,
  kString,
  kList,
  kTuple,
  kDict,
  kNamespace,
  kLoop,
  kFunction,
};

struct List;
struct Dict;
struct Namespace;
struct LoopState;
struct Function;

class Value {
 public:
  Value() = default;  ///< undefined without a name
  static Value none() { return Value(Kind::kNone); }
  static Value boolean(bool b) {
    Value v(Kind::kBool);
    v.int_ = b;
    return v;
  }
  static Value integer(int64_t i) {
    Value v(Kind::kInt);
    v.int_ = i;
    return v;
  }
  static Value floating(double d) {
    Value v(Kind::kFloat);
    v.float_ = d;
    return v;
  }
  static Value object(Kind kind, std::shared_ptr<Object> object) {
    Value v(kind);
    v.ref_ = std::move(object);
    return v;
  }

  Kind kind() const noexcept { return kind_; }
  bool is(Kind kind) const noexcept { return kind_ == kind; }
  bool is_number() const noexcept {
    return kind_ == Kind::kBool || kind_ == Kind::kInt || kind_ == Kind::kFloat;
  }
  /// bool or int: what Python calls an int.
  bool is_integral() const noexcept { return kind_ == Kind::kBool || kind_ == Kind::kInt; }
  bool is_sequence() const noexcept { return kind_ == Kind::kList || kind_ == Kind::kTuple; }

  int64_t as_int() const noexcept { return int_; }  ///< kBool, kInt
  double as_double() const noexcept {               ///< numbers
    return kind_ == Kind::kFloat ? float_ : static_cast<double>(int_);
  }
  const Text& text() const noexcept;          ///< kString
  List& list() const noexcept;                ///< kList, kTuple
  Dict& dict() const noexcept;                ///< kDict
  Namespace& ns() const noexcept;             ///< kNamespace
  LoopState& loop() const noexcept;           ///< kLoop
  Function& function() const noexcept;        ///< kFunction
  const std::string& undefined_hint() const;  ///< kUndefined: "'x' is undefined"
  /// A list made anew, as a tuple.
  Value as_tuple() && {
    kind_ = Kind::kTuple;
    return std::move(*this);
  }
  const Object* identity() const noexcept { return ref_.get(); }

 private:
  explicit Value(Kind kind) : kind_(kind) {}
  Kind kind_ = Kind::kUndefined;
  union {
    int64_t int_ = 0;
    double float_;
  };
  std::shared_ptr<Object> ref_;
};

struct StringObject final : Object {
  StringObject(Budget& b, Text t) : Object(b, t.heap_bytes()), text(std::move(t)) {}
  Text text;
};

struct UndefinedObject final : Object {
  UndefinedObject(Budget& b, std::string h) : Object(b, h.size()), hint(std::move(h)) {}
  std::string hint;
};

/// Keeps the destruction of deeply nested values off the call stack.
void destroy_later(std::vector<Value>&& values) noexcept;

struct List final : Object {
  explicit List(Budget& b) : Object(b, 0) {}
  ~List() override { destroy_later(std::move(items)); }
  void push(Value v) {
    grow(sizeof(Value));
    items.push_back(std::move(v));
  }
  std::vector<Value> items;
  bool from_input = false;  ///< belongs to the request: templates may not change it
};

/// Insertion-ordered, like Python's.
struct Dict final : Object {
  explicit Dict(Budget& b) : Object(b, 0) {}
  ~Dict() override;
  /// Null when absent. Keys that cannot be hashed are absent.
  const Value* find(const Value& key) const;
  const Value* find(std::string_view key) const;
  /// Throws std::invalid_argument for a key that cannot be hashed.
  void set(Value key, Value value);
  std::vector<std::pair<Value, Value>> entries;
  bool from_input = false;

 private:
  const Value* find_hash(const std::string& hash) const;
  std::unordered_map<std::string, size_t> index_;
};

struct Namespace final : Object {
  explicit Namespace(Budget& b) : Object(b, 0) {}
  ~Namespace() override;
  const Value* find(std::string_view name) const;
  void set(std::string_view name, Value value);
  std::vector<std::pair<std::string, Value>> entries;
};

struct LoopState final : Object {
  explicit LoopState(Budget& b) : Object(b, 0) {}
  ~LoopState() override {
    destroy_later(std::move(items));
    destroy_later(std::move(last_changed));
  }
  std::vector<Value> items;
  size_t index0 = 0;
  bool has_last_changed = false;
  std::vector<Value> last_changed;
};

struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
};

/// A builtin, a method bound to its object, or a macro.
struct Function final : Object {
  /// Values belong into `held`, not into the closure: there they are seen when cycles are looked
  /// for, and destroyed without recursion.
  using Body = std::function<Value(Interpreter&, Function& self, Arguments&)>;
  Function(Budget& b, std::string n, Body f, std::vector<Value> h)
      : Object(b, 128), name(std::move(n)), body(std::move(f)), held(std::move(h)) {}
  ~Function() override { destroy_later(std::move(held)); }
  std::string name;
  Body body;
  std::vector<Value> held;
};

inline const Text& Value::text() const noexcept {
  return static_cast<const StringObject*>(ref_.get())->text;
}
inline List& Value::list() const noexcept {
  return *static_cast<List*>(ref_.get());
}
inline Dict& Value::dict() const noexcept {
  return *static_cast<Dict*>(ref_.get());
}
inline Namespace& Value::ns() const noexcept {
  return *static_cast<Namespace*>(ref_.get());
}
inline LoopState& Value::loop() const noexcept {
  return *static_cast<LoopState*>(ref_.get());
}
inline Function& Value::function() const noexcept {
  return *static_cast<Function*>(ref_.get());
}

/// Python's type name: "str", "NoneType", ...
std::string_view type_name(const Value& value) noexcept;
/// Python's repr of a float: the shortest digits that read back the same.
std::string float_repr(double value);

}  // namespace ts::jinja
