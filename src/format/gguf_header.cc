#include "format/gguf_header.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <string_view>
#include <unordered_set>
#include <utility>

#include <fmt/format.h>

#include <tensorsharp/error.hpp>

#include "base/checked_math.h"
#include "base/quote_text.h"
#include "format/file_kind.h"

namespace ts {
namespace {

static_assert(std::endian::native == std::endian::little, "loads below assume little-endian");

constexpr uint64_t kMaxKeyBytes = 65535;
/// The least a metadata pair and a tensor row take in a file, for checking counts.
constexpr uint64_t kMinPairBytes = 8 + 4 + 1;
constexpr uint64_t kMinTensorBytes = 8 + 4 + 8 + 4 + 8;

/// Bytes of a fixed-size element; 0 for strings and arrays.
constexpr uint64_t element_bytes(MetadataType type) noexcept {
  switch (type) {
    case MetadataType::kUint8:
    case MetadataType::kInt8:
    case MetadataType::kBool:
      return 1;
    case MetadataType::kUint16:
    case MetadataType::kInt16:
      return 2;
    case MetadataType::kUint32:
    case MetadataType::kInt32:
    case MetadataType::kFloat32:
      return 4;
    case MetadataType::kUint64:
    case MetadataType::kInt64:
    case MetadataType::kFloat64:
      return 8;
    case MetadataType::kString:
    case MetadataType::kArray:
      break;
  }
  return 0;
}

/// Reads a header front to back. `where_` names the field at hand for messages.
class HeaderReader {
 public:
  HeaderReader(std::span<const std::byte> bytes, const std::string& name, const GgufLimits& limits)
      : bytes_(bytes), name_(name), limits_(limits) {}

  GgufHeader read() {
    GgufHeader header;
    header.metadata = Metadata(name_);
    read_magic_and_version(header);
    const uint64_t n_tensors = read_count("tensor count", limits_.max_tensors, kMinTensorBytes);
    const uint64_t n_pairs =
        read_count("metadata count", limits_.max_metadata_pairs, kMinPairBytes);
    if (n_tensors * kMinTensorBytes + n_pairs * kMinPairBytes > left()) {
      throw FormatError(
          fmt::format("{}: {} tensors and {} metadata pairs cannot fit into the {} bytes that "
                      "follow; the file is cut off or damaged: download it again",
                      name_, n_tensors, n_pairs, left()));
    }
    for (uint64_t i = 0; i < n_pairs; ++i)
      read_pair(header.metadata, i);
    read_alignment(header);
    read_tensor_table(header, n_tensors);
    const auto start = checked_round_up(position_, header.alignment);
    header.data_start = *start;  // position_ < 2^63 and alignment <= 2^30
    return header;
  }

 private:
  uint64_t left() const noexcept { return bytes_.size() - position_; }

  /// "metadata key 'a'" or "tensor 3", what is being read.
  [[noreturn]] void fail(const std::string& problem) const {
    throw FormatError(fmt::format("{}: {}: {}", name_, where_, problem));
  }
  [[noreturn]] void fail_cut_off(uint64_t needed) const {
    fail(
        fmt::format("needs {} bytes at byte {} but {} are left; the file is cut off or damaged: "
                    "download it again",
                    needed, position_, left()));
  }

  template <typename T>
  T load() {
    if (left() < sizeof(T)) fail_cut_off(sizeof(T));
    T value;
    std::memcpy(&value, bytes_.data() + position_, sizeof(T));
    position_ += sizeof(T);
    return value;
  }

  std::string_view load_string(uint64_t max_bytes) {
    const uint64_t length = load<uint64_t>();
    if (length > max_bytes) {
      fail(
          fmt::format("a string of {} bytes at byte {}, more than the {} allowed; the file is "
                      "damaged: download it again",
                      length, position_ - 8, max_bytes));
    }
    if (length > left()) fail_cut_off(length);
    const std::string_view text(reinterpret_cast<const char*>(bytes_.data()) + position_,
                                static_cast<size_t>(length));
    position_ += length;
    return text;
  }

  void read_magic_and_version(GgufHeader& header) {
    const auto head = bytes_.first(std::min<size_t>(bytes_.size(), 512));
    if (bytes_.size() < 4 || std::memcmp(bytes_.data(), "GGUF", 4) != 0) {
      std::string what = describe_foreign_file(head, bytes_.size());
      if (what.empty()) {
        what = "the first four bytes are " +
               quote_text(
                   {reinterpret_cast<const char*>(head.data()), std::min<size_t>(head.size(), 4)}) +
               ", expected 'GGUF'";
      }
      throw FormatError(fmt::format("{}: not a GGUF file: {}", name_, what));
    }
    position_ = 4;
    where_ = "version";
    header.version = load<uint32_t>();
    if ((header.version & 0xFFFF) == 0 && header.version != 0) {
      throw Unsupported(fmt::format(
          "{}: this GGUF file is big-endian; convert it to little-endian or download that form",
          name_));
    }
    if (header.version == 1) {
      throw Unsupported(fmt::format(
          "{}: GGUF version 1 is too old (2 and 3 are read); download a newer file", name_));
    }
    if (header.version == 0) {
      throw FormatError(fmt::format(
          "{}: GGUF version 0 does not exist; the file is damaged: download it again", name_));
    }
    if (header.version > 3) {
      throw Unsupported(fmt::format(
          "{}: GGUF version {} is newer than this program (2 and 3 are read); update it", name_,
          header.version));
    }
  }

  uint64_t read_count(const char* what, uint64_t limit, uint64_t min_bytes) {
    where_ = what;
    const uint64_t count = load<uint64_t>();
    if (count > limit) {
      fail(fmt::format("{}, more than the {} allowed; the file is damaged: download it again",
                       count, limit));
    }
    if (count > left() / min_bytes) {
      fail(
          fmt::format("{}, but the file has only {} more bytes; it is cut off or damaged: download "
                      "it again",
                      count, left()));
    }
    return count;
  }

  void read_pair(Metadata& metadata, uint64_t number) {
    where_ = fmt::format("metadata pair {}", number);
    std::string key(load_string(kMaxKeyBytes));
    where_ = "metadata key " + quote_text(key);
    if (key.empty()) fail("the key is empty; the file is damaged");
    if (metadata.contains(key)) fail("occurs twice; the file is malformed");
    const auto type = static_cast<MetadataType>(load<uint32_t>());
    metadata.set(std::move(key), read_value(type));
  }

  MetadataValue read_value(MetadataType type) {
    switch (type) {
      case MetadataType::kUint8:
        return {type, uint64_t{load<uint8_t>()}};
      case MetadataType::kInt8:
        return {type, int64_t{load<int8_t>()}};
      case MetadataType::kUint16:
        return {type, uint64_t{load<uint16_t>()}};
      case MetadataType::kInt16:
        return {type, int64_t{load<int16_t>()}};
      case MetadataType::kUint32:
        return {type, uint64_t{load<uint32_t>()}};
      case MetadataType::kInt32:
        return {type, int64_t{load<int32_t>()}};
      case MetadataType::kUint64:
        return {type, load<uint64_t>()};
      case MetadataType::kInt64:
        return {type, load<int64_t>()};
      case MetadataType::kFloat32:
        return {type, static_cast<double>(load<float>())};
      case MetadataType::kFloat64:
        return {type, load<double>()};
      case MetadataType::kBool: {
        const uint8_t v = load<uint8_t>();
        if (v > 1) fail(fmt::format("a bool is {}, expected 0 or 1; the file is damaged", v));
        return {type, v == 1};
      }
      case MetadataType::kString:
        return {type, std::string(load_string(limits_.max_string_bytes))};
      case MetadataType::kArray:
        return {type, read_array()};
    }
    fail(
        fmt::format("value type {} is not one of 0 to 12; the file is damaged or newer than this "
                    "program",
                    static_cast<uint32_t>(type)));
  }

  MetadataArray read_array() {
    const auto type = static_cast<MetadataType>(load<uint32_t>());
    const uint64_t count = load<uint64_t>();
    if (type == MetadataType::kArray) fail("an array of arrays, which GGUF models do not use");
    if (static_cast<uint32_t>(type) > 12) {
      fail(
          fmt::format("array of element type {}, which is not one of 0 to 12; the file is damaged "
                      "or newer than this program",
                      static_cast<uint32_t>(type)));
    }
    if (count > limits_.max_array_elems) {
      fail(
          fmt::format("an array of {} elements, more than the {} allowed; the file is damaged: "
                      "download it again",
                      count, limits_.max_array_elems));
    }
    // Checked against what is left before anything is reserved. A string takes at least its length
    // field.
    const uint64_t each = type == MetadataType::kString ? 8 : element_bytes(type);
    if (count > left() / each) {
      fail(
          fmt::format("an array of {} elements at byte {}, but the file has only {} more bytes; it "
                      "is cut off or damaged: download it again",
                      count, position_ - 12, left()));
    }
    charge_memory(count * (type == MetadataType::kString ? sizeof(std::string) : 8));
    switch (type) {
      case MetadataType::kUint8:
        return {type, read_numbers<uint8_t, uint64_t>(count)};
      case MetadataType::kInt8:
        return {type, read_numbers<int8_t, int64_t>(count)};
      case MetadataType::kUint16:
        return {type, read_numbers<uint16_t, uint64_t>(count)};
      case MetadataType::kInt16:
        return {type, read_numbers<int16_t, int64_t>(count)};
      case MetadataType::kUint32:
        return {type, read_numbers<uint32_t, uint64_t>(count)};
      case MetadataType::kInt32:
        return {type, read_numbers<int32_t, int64_t>(count)};
      case MetadataType::kUint64:
        return {type, read_numbers<uint64_t, uint64_t>(count)};
      case MetadataType::kInt64:
        return {type, read_numbers<int64_t, int64_t>(count)};
      case MetadataType::kFloat32:
        return {type, read_numbers<float, float>(count)};
      case MetadataType::kFloat64:
        return {type, read_numbers<double, double>(count)};
      case MetadataType::kBool: {
        for (const std::byte b : bytes_.subspan(position_, count)) {
          if (b > std::byte{1}) {
            fail(fmt::format("a bool is {}, expected 0 or 1; the file is damaged",
                             static_cast<int>(b)));
          }
        }
        return {type, read_numbers<uint8_t, bool>(count)};
      }
      default:
        return {type, read_strings(count)};
    }
  }

  /// `count` has been checked against the file size.
  template <typename Stored, typename Kept>
  std::vector<Kept> read_numbers(uint64_t count) {
    std::vector<Kept> out(static_cast<size_t>(count));
    const std::byte* in = bytes_.data() + position_;
    for (size_t i = 0; i < out.size(); ++i) {
      Stored value;
      std::memcpy(&value, in + i * sizeof(Stored), sizeof(Stored));
      out[i] = static_cast<Kept>(value);
    }
    position_ += count * sizeof(Stored);
    return out;
  }

  /// Vocabularies and merges: hundreds of thousands of short strings, so the loop does nothing per
  /// string but a length check and the copy.
  std::vector<std::string> read_strings(uint64_t count) {
    std::vector<std::string> out;
    out.reserve(static_cast<size_t>(count));
    const char* in = reinterpret_cast<const char*>(bytes_.data());
    for (uint64_t i = 0; i < count; ++i) {
      uint64_t length = 0;
      if (left() < 8) fail_in_array(i, 8);
      std::memcpy(&length, in + position_, 8);
      position_ += 8;
      if (length > left() || length > limits_.max_string_bytes) fail_in_array(i, length);
      out.emplace_back(in + position_, static_cast<size_t>(length));
      position_ += length;
    }
    return out;
  }
  [[noreturn]] void fail_in_array(uint64_t index, uint64_t needed) {
    where_ += fmt::format("[{}]", index);
    fail_cut_off(needed);
  }

  /// Arrays of small integers grow when widened; the sum over all keys is bounded.
  void charge_memory(uint64_t bytes) {
    array_bytes_ += bytes;
    if (array_bytes_ > limits_.max_metadata_memory_bytes) {
      fail(
          fmt::format("the metadata arrays take more than the {} bytes of memory allowed; the file "
                      "is damaged or not a model",
                      limits_.max_metadata_memory_bytes));
    }
  }

  void read_alignment(GgufHeader& header) {
    const MetadataValue* value = header.metadata.find("general.alignment");
    if (value == nullptr) return;
    where_ = "metadata key 'general.alignment'";
    if (value->type != MetadataType::kUint32) {
      fail(fmt::format("is {}, expected u32; the file is malformed", describe_type(*value)));
    }
    const uint64_t alignment = std::get<uint64_t>(value->value);
    if (!is_valid_gguf_alignment(alignment)) {
      fail(fmt::format("is {}, expected a power of two from {} to {}; the file is malformed",
                       alignment, kGgufMinAlignment, kGgufMaxAlignment));
    }
    header.alignment = alignment;
  }

  void read_tensor_table(GgufHeader& header, uint64_t n_tensors) {
    where_ = "tensor table";
    if (n_tensors * kMinTensorBytes > left()) fail_cut_off(n_tensors * kMinTensorBytes);
    header.tensors.reserve(static_cast<size_t>(n_tensors));
    std::unordered_set<std::string_view> names;
    names.reserve(static_cast<size_t>(n_tensors));
    for (uint64_t i = 0; i < n_tensors; ++i) {
      where_ = fmt::format("tensor {} of {}", i, n_tensors);
      const std::string_view name = load_string(limits_.max_string_bytes);
      if (const std::string problem = gguf_name_problem(name); !problem.empty()) {
        fail(fmt::format("the name {} {}", quote_text(name), problem));
      }
      where_ = "tensor " + quote_text(name);
      // The views point into the file, not into the growing vector.
      if (!names.insert(name).second) fail("occurs twice; the file is malformed");
      header.tensors.push_back(read_tensor_info(name));
    }
  }

  GgufTensorInfo read_tensor_info(std::string_view name) {
    GgufTensorInfo info;
    info.name = name;
    const uint32_t n_dims = load<uint32_t>();
    if (n_dims < 1 || n_dims > Shape::kMaxDims) {
      fail(fmt::format("{} dimensions, expected 1 to {}; the file is damaged", n_dims,
                       Shape::kMaxDims));
    }
    info.shape.n_dims = static_cast<int>(n_dims);
    for (uint32_t d = 0; d < n_dims; ++d) {
      const uint64_t extent = load<uint64_t>();
      if (extent == 0 || extent > static_cast<uint64_t>(INT64_MAX)) {
        fail(fmt::format("dimension {} is {}, expected 1 or more; the file is damaged", d,
                         static_cast<int64_t>(extent)));
      }
      info.shape.ne[d] = static_cast<int64_t>(extent);
    }
    if (!info.shape.checked_elems()) {
      fail(fmt::format(
          "the number of elements of shape {} does not fit 64 bits; the file is damaged",
          info.shape.to_string()));
    }
    info.type = static_cast<TypeId>(load<uint32_t>());
    info.offset = load<uint64_t>();
    return info;
  }

  std::span<const std::byte> bytes_;
  const std::string& name_;
  const GgufLimits& limits_;
  uint64_t position_ = 0;
  uint64_t array_bytes_ = 0;
  std::string where_ = "header";
};

}  // namespace

bool is_valid_gguf_alignment(uint64_t alignment) noexcept {
  return std::has_single_bit(alignment) && alignment >= kGgufMinAlignment &&
         alignment <= kGgufMaxAlignment;
}

std::string gguf_name_problem(std::string_view name) {
  if (name.empty()) return "is empty";
  if (name.size() > kGgufMaxNameBytes) {
    return fmt::format("has {} bytes, at most {} are allowed", name.size(), kGgufMaxNameBytes);
  }
  if (find_invalid_utf8(name) != std::string_view::npos) return "is not UTF-8";
  for (const char c : name) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) return "holds control characters";
  }
  return {};
}

GgufHeader read_gguf_header(std::span<const std::byte> bytes, const std::string& name,
                            const GgufLimits& limits) {
  return HeaderReader(bytes, name, limits).read();
}

}  // namespace ts
