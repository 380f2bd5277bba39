#include "format/metadata.h"

#include <cfloat>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include <tensorsharp/error.hpp>

#include "base/quote_text.h"

namespace ts {
namespace {

template <typename T>
MetadataValue array_value(MetadataType element_type, std::vector<T> v) {
  return {MetadataType::kArray, MetadataArray{element_type, std::move(v)}};
}

[[noreturn]] void throw_type_error(const Metadata& metadata, std::string_view key,
                                   const MetadataValue& found, std::string_view expected) {
  throw FormatError(fmt::format("{}: metadata key {} is {}, expected {}", metadata.source(),
                                quote_text(key), describe_type(found), expected));
}

[[noreturn]] void throw_range_error(const Metadata& metadata, std::string_view key,
                                    const std::string& found, int64_t min, int64_t max) {
  throw FormatError(fmt::format("{}: metadata key {} is {}, expected {} to {}", metadata.source(),
                                quote_text(key), found, min, max));
}

int64_t checked_int(const Metadata& metadata, std::string_view key, int64_t v, int64_t min,
                    int64_t max) {
  if (v < min || v > max) throw_range_error(metadata, key, std::to_string(v), min, max);
  return v;
}

int64_t checked_int(const Metadata& metadata, std::string_view key, uint64_t v, int64_t min,
                    int64_t max) {
  if (v > static_cast<uint64_t>(INT64_MAX)) {
    throw_range_error(metadata, key, std::to_string(v), min, max);
  }
  return checked_int(metadata, key, static_cast<int64_t>(v), min, max);
}

const MetadataArray* as_array(const MetadataValue& value) {
  return std::get_if<MetadataArray>(&value.value);
}

}  // namespace

size_t MetadataArray::size() const noexcept {
  return std::visit([](const auto& v) { return v.size(); }, data);
}

MetadataValue MetadataValue::u32(uint32_t v) {
  return {MetadataType::kUint32, uint64_t{v}};
}
MetadataValue MetadataValue::i32(int32_t v) {
  return {MetadataType::kInt32, int64_t{v}};
}
MetadataValue MetadataValue::u64(uint64_t v) {
  return {MetadataType::kUint64, v};
}
MetadataValue MetadataValue::f32(float v) {
  return {MetadataType::kFloat32, static_cast<double>(v)};
}
MetadataValue MetadataValue::boolean(bool v) {
  return {MetadataType::kBool, v};
}
MetadataValue MetadataValue::string(std::string v) {
  return {MetadataType::kString, std::move(v)};
}
MetadataValue MetadataValue::strings(std::vector<std::string> v) {
  return array_value(MetadataType::kString, std::move(v));
}
MetadataValue MetadataValue::i32_array(std::vector<int64_t> v) {
  return array_value(MetadataType::kInt32, std::move(v));
}
MetadataValue MetadataValue::f32_array(std::vector<float> v) {
  return array_value(MetadataType::kFloat32, std::move(v));
}

const MetadataValue* Metadata::find(std::string_view key) const noexcept {
  const auto it = index_.find(key);
  return it == index_.end() ? nullptr : &entries_[it->second].second;
}

void Metadata::set(std::string key, MetadataValue value) {
  const auto [it, added] = index_.try_emplace(key, entries_.size());
  if (added) {
    entries_.emplace_back(std::move(key), std::move(value));
  } else {
    entries_[it->second].second = std::move(value);
  }
}

void Metadata::set_all(const Metadata& other) {
  for (const auto& [key, value] : other.entries())
    set(key, value);
}

void Metadata::erase(std::string_view key) {
  const auto it = index_.find(key);
  if (it == index_.end()) return;
  const size_t position = it->second;
  index_.erase(it);
  entries_.erase(entries_.begin() + static_cast<ptrdiff_t>(position));
  for (auto& [name, at] : index_) {
    if (at > position) --at;
  }
}

std::optional<int64_t> Metadata::get_int(std::string_view key, int64_t min, int64_t max) const {
  const MetadataValue* found = find(key);
  if (found == nullptr) return std::nullopt;
  if (const auto* v = std::get_if<int64_t>(&found->value)) {
    return checked_int(*this, key, *v, min, max);
  }
  if (const auto* v = std::get_if<uint64_t>(&found->value)) {
    return checked_int(*this, key, *v, min, max);
  }
  throw_type_error(*this, key, *found, "an integer");
}

std::optional<double> Metadata::get_float(std::string_view key) const {
  const MetadataValue* found = find(key);
  if (found == nullptr) return std::nullopt;
  if (const auto* v = std::get_if<double>(&found->value)) {
    if (!std::isfinite(*v)) {
      throw FormatError(fmt::format("{}: metadata key {} is {}, expected a finite number", source_,
                                    quote_text(key), *v));
    }
    return *v;
  }
  if (const auto* v = std::get_if<int64_t>(&found->value)) return static_cast<double>(*v);
  if (const auto* v = std::get_if<uint64_t>(&found->value)) return static_cast<double>(*v);
  throw_type_error(*this, key, *found, "a number");
}

std::optional<bool> Metadata::get_bool(std::string_view key) const {
  const MetadataValue* found = find(key);
  if (found == nullptr) return std::nullopt;
  if (const auto* v = std::get_if<bool>(&found->value)) return *v;
  throw_type_error(*this, key, *found, "a bool");
}

std::optional<std::string> Metadata::get_string(std::string_view key) const {
  const MetadataValue* found = find(key);
  if (found == nullptr) return std::nullopt;
  if (const auto* v = std::get_if<std::string>(&found->value)) return *v;
  throw_type_error(*this, key, *found, "a string");
}

const std::vector<std::string>* Metadata::get_strings(std::string_view key) const {
  const MetadataValue* found = find(key);
  if (found == nullptr) return nullptr;
  if (const MetadataArray* array = as_array(*found)) {
    if (const auto* v = std::get_if<std::vector<std::string>>(&array->data)) return v;
  }
  throw_type_error(*this, key, *found, "an array of strings");
}

std::optional<std::vector<int64_t>> Metadata::get_ints(std::string_view key, int64_t min,
                                                       int64_t max) const {
  const MetadataValue* found = find(key);
  if (found == nullptr) return std::nullopt;
  if (const MetadataArray* array = as_array(*found)) {
    std::vector<int64_t> out;
    if (const auto* v = std::get_if<std::vector<int64_t>>(&array->data)) {
      out.reserve(v->size());
      for (const int64_t x : *v)
        out.push_back(checked_int(*this, key, x, min, max));
      return out;
    }
    if (const auto* v = std::get_if<std::vector<uint64_t>>(&array->data)) {
      out.reserve(v->size());
      for (const uint64_t x : *v)
        out.push_back(checked_int(*this, key, x, min, max));
      return out;
    }
  }
  throw_type_error(*this, key, *found, "an array of integers");
}

std::optional<std::vector<float>> Metadata::get_floats(std::string_view key) const {
  const MetadataValue* found = find(key);
  if (found == nullptr) return std::nullopt;
  if (const MetadataArray* array = as_array(*found)) {
    if (const auto* v = std::get_if<std::vector<float>>(&array->data)) return *v;
    if (const auto* v = std::get_if<std::vector<double>>(&array->data)) {
      std::vector<float> out;
      out.reserve(v->size());
      for (const double x : *v) {
        // A value past the f32 range must not become an infinity unnoticed.
        if (std::isfinite(x) && std::fabs(x) > static_cast<double>(FLT_MAX)) {
          throw FormatError(fmt::format("{}: metadata key {} holds {}, which is no f32", source_,
                                        quote_text(key), x));
        }
        out.push_back(static_cast<float>(x));
      }
      return out;
    }
  }
  throw_type_error(*this, key, *found, "an array of floats");
}

std::optional<std::vector<bool>> Metadata::get_bools(std::string_view key) const {
  const MetadataValue* found = find(key);
  if (found == nullptr) return std::nullopt;
  if (const MetadataArray* array = as_array(*found)) {
    if (const auto* v = std::get_if<std::vector<bool>>(&array->data)) return *v;
  }
  throw_type_error(*this, key, *found, "an array of bools");
}

std::string describe_type(MetadataType type) {
  switch (type) {
    case MetadataType::kUint8:
      return "u8";
    case MetadataType::kInt8:
      return "i8";
    case MetadataType::kUint16:
      return "u16";
    case MetadataType::kInt16:
      return "i16";
    case MetadataType::kUint32:
      return "u32";
    case MetadataType::kInt32:
      return "i32";
    case MetadataType::kFloat32:
      return "f32";
    case MetadataType::kBool:
      return "bool";
    case MetadataType::kString:
      return "string";
    case MetadataType::kArray:
      return "array";
    case MetadataType::kUint64:
      return "u64";
    case MetadataType::kInt64:
      return "i64";
    case MetadataType::kFloat64:
      return "f64";
  }
  return fmt::format("type {}", static_cast<uint32_t>(type));
}

std::string describe_type(const MetadataValue& value) {
  const MetadataArray* array = as_array(value);
  if (array == nullptr) return describe_type(value.type);
  return fmt::format("array of {} [{}]", describe_type(array->element_type), array->size());
}

}  // namespace ts
