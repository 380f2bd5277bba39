/// Typed key-value metadata of a model file, in file order.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <variant>
#include <vector>

namespace ts {

/// GGUF value type numbers.
enum class MetadataType : uint32_t {
  kUint8 = 0,
  kInt8,
  kUint16,
  kInt16,
  kUint32,
  kInt32,
  kFloat32,
  kBool,
  kString,
  kArray,
  kUint64,
  kInt64,
  kFloat64,
};

/// An array keeps its elements in the narrowest C++ form: integers as int64/uint64, floats as
/// double (f32 arrays as float), strings as std::string.
using MetadataArrayData =
    std::variant<std::vector<int64_t>, std::vector<uint64_t>, std::vector<float>,
                 std::vector<double>, std::vector<bool>, std::vector<std::string>>;
struct MetadataArray {
  MetadataType element_type = MetadataType::kInt32;
  MetadataArrayData data;
  size_t size() const noexcept;
};

struct MetadataValue {
  MetadataType type = MetadataType::kUint32;
  /// Signed integers as int64, unsigned as uint64, both float types as double.
  std::variant<int64_t, uint64_t, double, bool, std::string, MetadataArray> value;

  static MetadataValue u32(uint32_t v);
  static MetadataValue i32(int32_t v);
  static MetadataValue u64(uint64_t v);
  static MetadataValue f32(float v);
  static MetadataValue boolean(bool v);
  static MetadataValue string(std::string v);
  static MetadataValue strings(std::vector<std::string> v);
  static MetadataValue i32_array(std::vector<int64_t> v);
  static MetadataValue f32_array(std::vector<float> v);
};

class Metadata {
 public:
  /// `source` (a file name) appears in the messages of the getters below.
  explicit Metadata(std::string source = {}) : source_(std::move(source)) {}

  size_t size() const noexcept { return entries_.size(); }
  std::span<const std::pair<std::string, MetadataValue>> entries() const noexcept {
    return entries_;
  }
  const MetadataValue* find(std::string_view key) const noexcept;
  bool contains(std::string_view key) const noexcept { return find(key) != nullptr; }
  /// Adds or replaces.
  void set(std::string key, MetadataValue value);
  /// Adds or replaces every entry of `other`.
  void set_all(const Metadata& other);
  void erase(std::string_view key);
  const std::string& source() const noexcept { return source_; }

  // Getters return nothing when the key is absent and throw FormatError naming file, key, found and
  // expected type when it holds something else. Integers of any width are accepted and range
  // checked; a float is never read as an integer.
  std::optional<int64_t> get_int(std::string_view key, int64_t min, int64_t max) const;
  std::optional<double> get_float(std::string_view key) const;  ///< also accepts integers; finite
  std::optional<bool> get_bool(std::string_view key) const;
  std::optional<std::string> get_string(std::string_view key) const;
  const std::vector<std::string>* get_strings(std::string_view key) const;
  /// Integer arrays of any element width, range checked.
  std::optional<std::vector<int64_t>> get_ints(std::string_view key, int64_t min,
                                               int64_t max) const;
  std::optional<std::vector<float>> get_floats(std::string_view key) const;
  std::optional<std::vector<bool>> get_bools(std::string_view key) const;

 private:
  /// Hashes std::string and std::string_view alike, so that look-ups need no copy.
  struct KeyHash {
    using is_transparent = void;
    size_t operator()(std::string_view key) const noexcept {
      return std::hash<std::string_view>{}(key);
    }
  };
  std::string source_;
  std::vector<std::pair<std::string, MetadataValue>> entries_;
  std::unordered_map<std::string, size_t, KeyHash, std::equal_to<>> index_;
};

/// "u32", "string", ... for a type number; "type 99" when there is no such type.
std::string describe_type(MetadataType type);
/// "u32", "string", "array of i32 [3]" and so on, for messages and `inspect`.
std::string describe_type(const MetadataValue& value);

}  // namespace ts
