/// One named tensor of an opened file, of whatever container.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

#include "tensor/tensor_view.h"

namespace ts {

struct TensorEntry {
  std::string name;
  TypeId type = TypeId::kF32;  ///< may be a number no codec knows
  Shape shape;
  uint64_t bytes = 0;        ///< 0 when the type is unknown
  uint64_t file_offset = 0;  ///< absolute, within `file`
  std::filesystem::path file;
  /// The mapped bytes; empty when the type is unknown. Valid while the file object lives.
  std::span<const std::byte> data;

  TensorView view() const { return {name, type, shape, data}; }
};

}  // namespace ts
