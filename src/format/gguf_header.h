/// The header of one GGUF part: everything before the tensor data. Internal to src/format.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "format/gguf.h"
#include "format/metadata.h"
#include "tensor/shape.h"
#include "tensor/type_id.h"

namespace ts {

/// Tensor names are shorter than this many bytes (the field of other engines holds 64 with its
/// terminator).
inline constexpr size_t kGgufMaxNameBytes = 63;
/// Bounds of general.alignment: the format demands a multiple of 8; beyond a huge page is damage.
inline constexpr uint64_t kGgufMinAlignment = 8;
inline constexpr uint64_t kGgufMaxAlignment = uint64_t{1} << 30;

/// True for a power of two within the bounds.
bool is_valid_gguf_alignment(uint64_t alignment) noexcept;
/// Why `name` cannot be a tensor name; empty when it can.
std::string gguf_name_problem(std::string_view name);

/// A row of the tensor table as the file states it; dimensions are positive and their product fits
/// int64, nothing else is checked yet.
struct GgufTensorInfo {
  std::string name;
  TypeId type = TypeId::kF32;
  Shape shape;
  uint64_t offset = 0;  ///< from data_start
};

struct GgufHeader {
  uint32_t version = 0;
  uint64_t alignment = 32;
  Metadata metadata;
  std::vector<GgufTensorInfo> tensors;
  uint64_t data_start = 0;  ///< first aligned byte after the table; may lie beyond a cut file
};

/// Reads and checks the header in `bytes` (a whole part). `name` stands for the file in messages.
/// Errors: FormatError (not GGUF, damaged, cut off, over a limit), Unsupported (byte order,
/// version).
GgufHeader read_gguf_header(std::span<const std::byte> bytes, const std::string& name,
                            const GgufLimits& limits);

}  // namespace ts
