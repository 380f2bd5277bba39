/// The JSON header of one safetensors file. Internal to src/format.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ts {

/// Cap on the length of the JSON header, the one other readers use.
inline constexpr uint64_t kSafetensorsMaxHeaderBytes = 100'000'000;

struct SafetensorsInfo {
  std::string name;
  std::string dtype;
  std::vector<int64_t> shape;
  uint64_t begin = 0, end = 0;  ///< in the data buffer
};

struct SafetensorsHeader {
  std::vector<SafetensorsInfo> tensors;  ///< in order of place, then checked to tile the buffer
  std::map<std::string, std::string> metadata;
  uint64_t data_start = 0;
};

/// Bits of one element of `dtype`; 0 for a dtype this version does not know.
uint64_t safetensors_dtype_bits(std::string_view dtype) noexcept;

/// Reads and checks the header in `bytes` (a whole file): JSON form, no repeated names, every range
/// inside the file and of the size its dtype and shape ask for, and the ranges together covering
/// the data exactly. Tensors of unknown dtype are listed; only their size cannot be checked.
/// Throws FormatError; `name` stands for the file.
SafetensorsHeader read_safetensors_header(std::span<const std::byte> bytes,
                                          const std::string& name);

}  // namespace ts
