#include "text/jinja/value.h"

#include <array>
#include <charconv>
#include <cmath>
#include <stdexcept>

#include <fmt/format.h>

#include <tensorsharp/error.hpp>

namespace ts::jinja {

void Budget::add(size_t n) {
  reserve(n);
  held_ += n;
}

void Budget::reserve(size_t n) const {
  if (n > limit_ - held_)
    throw ResourceExhausted(
        fmt::format("chat template: its values need more than {} MB of memory, the limit; the "
                    "template is damaged or hostile, or the conversation is too long",
                    limit_ >> 20));
}

void destroy_later(std::vector<Value>&& values) noexcept {
  // The outermost call drains the queue; calls made while it does only add to it.
  static thread_local std::vector<Value>* queue = nullptr;
  if (values.empty()) return;
  if (queue) {
    for (Value& v : values)
      if (v.identity()) queue->push_back(std::move(v));
    return;
  }
  std::vector<Value> local = std::move(values);
  queue = &local;
  while (!local.empty()) {
    const Value last = std::move(local.back());
    local.pop_back();
  }
  queue = nullptr;
}

Dict::~Dict() {
  std::vector<Value> values;
  values.reserve(entries.size());
  for (auto& [key, value] : entries)
    if (value.identity()) values.push_back(std::move(value));
  destroy_later(std::move(values));
}

Namespace::~Namespace() {
  std::vector<Value> values;
  for (auto& [name, value] : entries)
    if (value.identity()) values.push_back(std::move(value));
  destroy_later(std::move(values));
}

namespace {

constexpr size_t kLinearSearch = 8;  // dicts up to this size have no index

/// A string that is equal for keys that Python holds equal (1, 1.0 and True); empty for keys that
/// cannot be hashed. Tuples are not supported as keys.
std::string hash_key(const Value& key) {
  switch (key.kind()) {
    case Kind::kString:
      return "s" + key.text().bytes();
    case Kind::kBool:
    case Kind::kInt:
      return "i" + std::to_string(key.as_int());
    case Kind::kFloat: {
      const double d = key.as_double();
      if (d == std::floor(d) && std::abs(d) < 9e18)
        return "i" + std::to_string(static_cast<int64_t>(d));
      return "f" + float_repr(d);
    }
    case Kind::kNone:
      return "n";
    default:
      return "";
  }
}

}  // namespace

const Value* Dict::find_hash(const std::string& hash) const {
  if (hash.empty()) return nullptr;
  if (!index_.empty()) {
    const auto it = index_.find(hash);
    return it == index_.end() ? nullptr : &entries[it->second].second;
  }
  for (const auto& [key, value] : entries)
    if (hash_key(key) == hash) return &value;
  return nullptr;
}

const Value* Dict::find(const Value& key) const {
  if (key.is(Kind::kString)) return find(key.text().view());
  return find_hash(hash_key(key));
}

const Value* Dict::find(std::string_view key) const {
  if (!index_.empty()) return find_hash("s" + std::string(key));
  for (const auto& [k, value] : entries)
    if (k.is(Kind::kString) && k.text().view() == key) return &value;
  return nullptr;
}

void Dict::set(Value key, Value value) {
  if (const Value* held = find(key)) {
    *const_cast<Value*>(held) = std::move(value);
    return;
  }
  std::string hash = hash_key(key);
  if (hash.empty()) throw std::invalid_argument(std::string(type_name(key)));
  grow(2 * sizeof(Value) + hash.size());
  entries.emplace_back(std::move(key), std::move(value));
  if (!index_.empty()) {
    index_.emplace(std::move(hash), entries.size() - 1);
  } else if (entries.size() > kLinearSearch) {
    for (size_t i = 0; i < entries.size(); ++i)
      index_.emplace(hash_key(entries[i].first), i);
  }
}

const Value* Namespace::find(std::string_view name) const {
  for (const auto& [n, value] : entries)
    if (n == name) return &value;
  return nullptr;
}

void Namespace::set(std::string_view name, Value value) {
  for (auto& [n, v] : entries) {
    if (n != name) continue;
    v = std::move(value);
    return;
  }
  grow(sizeof(Value) + name.size());
  entries.emplace_back(std::string(name), std::move(value));
}

const std::string& Value::undefined_hint() const {
  static const std::string unnamed = "the value is undefined";
  return ref_ ? static_cast<const UndefinedObject*>(ref_.get())->hint : unnamed;
}

std::string_view type_name(const Value& value) noexcept {
  switch (value.kind()) {
    case Kind::kUndefined:
      return "Undefined";
    case Kind::kNone:
      return "NoneType";
    case Kind::kBool:
      return "bool";
    case Kind::kInt:
      return "int";
    case Kind::kFloat:
      return "float";
    case Kind::kString:
      return "str";
    case Kind::kList:
      return "list";
    case Kind::kTuple:
      return "tuple";
    case Kind::kDict:
      return "dict";
    case Kind::kNamespace:
      return "Namespace";
    case Kind::kLoop:
      return "LoopContext";
    case Kind::kFunction:
      return "function";
  }
  return "?";
}

std::string float_repr(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  std::array<char, 64> buffer{};
  const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value,
                                 std::chars_format::scientific)
                       .ptr;
  const std::string_view text(buffer.data(), static_cast<size_t>(end - buffer.data()));
  const size_t e = text.find('e');
  const int exponent = std::stoi(std::string(text.substr(e + 1)));
  if (exponent < -4 || exponent >= 16) {
    return fmt::format("{}e{}{:02d}", text.substr(0, e), exponent < 0 ? '-' : '+',
                       std::abs(exponent));
  }
  std::string sign, digits;
  for (const char c : text.substr(0, e)) {
    if (c == '-') sign = "-";
    if (c >= '0' && c <= '9') digits += c;
  }
  if (exponent < 0)
    return sign + "0." + std::string(static_cast<size_t>(-exponent - 1), '0') + digits;
  const size_t whole = static_cast<size_t>(exponent) + 1;
  if (digits.size() < whole) digits.append(whole - digits.size(), '0');
  return sign + digits.substr(0, whole) + "." +
         (digits.size() > whole ? digits.substr(whole) : "0");
}

}  // namespace ts::jinja
