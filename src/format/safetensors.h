/// safetensors files and sharded checkpoint directories, memory-mapped.
/// Format description: docs/formats/safetensors.md.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/mapped_file.h"

namespace ts {

struct SafetensorsEntry {
  std::string name;
  std::string dtype;           ///< as the file states it: "F32", "BF16", "F8_E4M3", ...
  std::vector<int64_t> shape;  ///< row-major, outermost first, as in the file
  std::filesystem::path file;
  std::span<const std::byte> data;  ///< little-endian, packed; any alignment

  int64_t n_elems() const noexcept;
};

class Safetensors {
 public:
  /// Opens one file, or a checkpoint directory (index file or model*.safetensors).
  static std::shared_ptr<const Safetensors> open(const std::filesystem::path& path);
  static std::shared_ptr<const Safetensors> parse(std::span<const std::byte> bytes,
                                                  std::string name);

  /// In order of name.
  std::span<const SafetensorsEntry> tensors() const noexcept { return tensors_; }
  const SafetensorsEntry* find(std::string_view name) const noexcept;
  const std::map<std::string, std::string>& metadata() const noexcept { return metadata_; }

  /// Converts elements [begin, begin + dst.size()) to f32. Throws Unsupported for dtypes that are
  /// not numbers we read (sub-byte floats, complex), naming the tensor.
  static void read_f32(const SafetensorsEntry& entry, int64_t begin, std::span<float> dst);

 private:
  friend class SafetensorsParser;
  Safetensors() = default;
  std::vector<SafetensorsEntry> tensors_;
  std::map<std::string, std::string> metadata_;
  std::vector<std::shared_ptr<const MappedFile>> parts_;
};

}  // namespace ts
