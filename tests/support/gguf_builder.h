/// Builds GGUF bytes field by field for tests; it checks nothing, so that it can write wrong files.
///
///   GgufBuilder b;
///   b.kv_u32("general.alignment", 64).tensor("w", {64, 2}, 0 /*F32*/, test_bytes(512));
///   std::string file = b.build();
#pragma once

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ts::test {

/// `count` bytes of a fixed pattern that differs from place to place.
inline std::string test_bytes(size_t count, uint32_t seed = 1) {
  std::string out(count, '\0');
  uint32_t state = seed * 2654435761u + 1;
  for (char& c : out) {
    state = state * 1664525u + 1013904223u;
    c = static_cast<char>(state >> 24);
  }
  return out;
}

template <typename T>
void append_value(std::string& out, T value) {
  char bytes[sizeof(T)];
  std::memcpy(bytes, &value, sizeof(T));
  out.append(bytes, sizeof(T));
}

inline void append_string(std::string& out, std::string_view text) {
  append_value<uint64_t>(out, text.size());
  out.append(text);
}

class GgufBuilder {
 public:
  struct Tensor {
    std::string name;
    std::vector<uint64_t> dims;
    uint32_t type = 0;
    std::string data;
    std::optional<uint64_t> offset;  ///< overrides the packed place
    std::optional<uint32_t> n_dims;  ///< overrides dims.size() in the file
  };

  uint32_t magic = 0x46554747;
  uint32_t version = 3;
  std::optional<uint64_t> tensor_count;  ///< overrides the number of tensors
  std::optional<uint64_t> pair_count;    ///< overrides the number of pairs
  uint64_t alignment = 32;               ///< used for packing; write the key yourself
  bool pad_last = true;
  std::vector<Tensor> tensors;

  /// A pair with its value bytes as they are.
  GgufBuilder& kv_raw(std::string_view key, uint32_t type, std::string_view value) {
    append_string(pairs_, key);
    append_value(pairs_, type);
    pairs_.append(value);
    ++n_pairs_;
    return *this;
  }
  template <typename T>
  GgufBuilder& kv(std::string_view key, uint32_t type, T value) {
    std::string bytes;
    append_value(bytes, value);
    return kv_raw(key, type, bytes);
  }
  GgufBuilder& kv_u32(std::string_view key, uint32_t v) { return kv(key, 4, v); }
  GgufBuilder& kv_f32(std::string_view key, float v) { return kv(key, 6, v); }
  GgufBuilder& kv_bool(std::string_view key, bool v) { return kv<uint8_t>(key, 7, v ? 1 : 0); }
  GgufBuilder& kv_string(std::string_view key, std::string_view v) {
    std::string bytes;
    append_string(bytes, v);
    return kv_raw(key, 8, bytes);
  }
  GgufBuilder& kv_strings(std::string_view key, const std::vector<std::string>& v) {
    std::string bytes;
    append_value<uint32_t>(bytes, 8);
    append_value<uint64_t>(bytes, v.size());
    for (const std::string& s : v)
      append_string(bytes, s);
    return kv_raw(key, 9, bytes);
  }
  /// An array of plain elements of GGUF type `element_type`.
  template <typename T>
  GgufBuilder& kv_array(std::string_view key, uint32_t element_type, const std::vector<T>& v) {
    std::string bytes;
    append_value(bytes, element_type);
    append_value<uint64_t>(bytes, v.size());
    for (const T x : v)
      append_value(bytes, x);
    return kv_raw(key, 9, bytes);
  }
  GgufBuilder& tensor(std::string name, std::vector<uint64_t> dims, uint32_t type,
                      std::string data) {
    tensors.push_back({std::move(name), std::move(dims), type, std::move(data), {}, {}});
    return *this;
  }

  /// Everything before the data section, padding included.
  std::string header() const {
    std::string out;
    append_value(out, magic);
    append_value(out, version);
    append_value<uint64_t>(out, tensor_count.value_or(tensors.size()));
    append_value<uint64_t>(out, pair_count.value_or(n_pairs_));
    out += pairs_;
    uint64_t offset = 0;
    for (const Tensor& t : tensors) {
      append_string(out, t.name);
      append_value<uint32_t>(out, t.n_dims.value_or(static_cast<uint32_t>(t.dims.size())));
      for (const uint64_t d : t.dims)
        append_value(out, d);
      append_value(out, t.type);
      append_value(out, t.offset.value_or(offset));
      offset += t.data.size() + padding(t.data.size());
    }
    out.append(padding(out.size()), '\0');
    return out;
  }
  /// The file: header and the tensors packed in order (an overridden offset moves no data).
  std::string build() const {
    std::string out = header();
    for (size_t i = 0; i < tensors.size(); ++i) {
      out += tensors[i].data;
      if (i + 1 < tensors.size() || pad_last) out.append(padding(tensors[i].data.size()), '\0');
    }
    return out;
  }

 private:
  size_t padding(size_t size) const {
    return alignment == 0 ? 0 : static_cast<size_t>((alignment - size % alignment) % alignment);
  }
  std::string pairs_;
  uint64_t n_pairs_ = 0;
};

inline std::span<const std::byte> as_bytes(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

inline void write_file(const std::filesystem::path& path, std::string_view bytes) {
  std::ofstream out(path, std::ios::binary);
  out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

inline std::string read_file(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

}  // namespace ts::test
