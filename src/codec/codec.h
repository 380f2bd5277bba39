/// Block formats of tensor data. A codec is one constexpr row: adding a format is one file here,
/// one line in registry.cc, a golden file and a page in docs/formats/.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "tensor/shape.h"
#include "tensor/type_id.h"

namespace ts {

/// The form in which kernels of a codec want the activations (see docs/architecture.md):
/// f32, or symmetric int8 with one f32 scale per group of 32, 64 or 128 inputs.
enum class ActivationForm : uint8_t { kF32, kInt8Group32, kInt8Group64, kInt8Group128 };

/// How much a decode(encode(x)) round trip may change x.
enum class Exactness : uint8_t {
  kExact,    ///< every f32 value survives (F32)
  kRounded,  ///< each value is rounded on its own (F16, BF16)
  kBlock,    ///< values share a scale per block
  kTernary,  ///< exact when each group holds only -s, 0, +s with an f16 s; lossy otherwise
};

/// Limits every codec keeps, so that callers can hold one block on the stack.
inline constexpr uint32_t kMaxBlockElems = 256;
inline constexpr uint32_t kMaxBlockBytes = 256;

struct Codec {
  TypeId id;
  std::string_view name;  ///< lower case, as printed and as accepted on the command line
  uint32_t block_elems;   ///< values per block; a row is a whole number of blocks
  uint32_t block_bytes;
  ActivationForm activation;
  Exactness exactness;
  uint32_t group_elems;  ///< values that share one scale (or scale and minimum); 0 = none
  int32_t file_type;     ///< general.file_type of a GGUF made mainly of this type; -1 = none

  /// Reference decoder: n_elems (a multiple of block_elems) values from packed blocks.
  void (*decode)(const std::byte* src, float* dst, size_t n_elems) noexcept;
  /// Reference encoder (the format's own rounding). Inputs must be finite. Null = read only.
  void (*encode)(const float* src, std::byte* dst, size_t n_elems) noexcept;
  /// Ternary codecs only: packs codes in {-1, 0, 1} and one f16 scale (bits) per group_elems
  /// values.
  void (*pack)(const int8_t* codes, const uint16_t* scales, std::byte* dst,
               size_t n_elems) noexcept;
  /// What a look at the raw bytes of ONE block tells beyond its values: a set of BlockFinding bits
  /// (block_check.h). Null = every byte pattern is as good as its values. Ternary codecs: a block
  /// without findings is finite and what encode() makes of its values, byte for byte.
  uint32_t (*inspect)(const std::byte* block) noexcept = nullptr;

  /// Bytes of one row of n_elems values; n_elems must be a multiple of block_elems.
  constexpr size_t row_bytes(size_t n_elems) const noexcept {
    return n_elems / block_elems * block_bytes;
  }
  constexpr double bits_per_weight() const noexcept {
    return 8.0 * static_cast<double>(block_bytes) / static_cast<double>(block_elems);
  }
  constexpr bool is_ternary() const noexcept { return pack != nullptr; }
};

/// All codecs this version reads, in order of type number.
std::span<const Codec* const> all_codecs() noexcept;
/// Null when unknown. Names are compared without regard to case.
const Codec* find_codec(TypeId id) noexcept;
const Codec* find_codec(std::string_view name) noexcept;
/// Throws Unsupported naming `what` (file and tensor), the number and its name.
const Codec& require_codec(TypeId id, std::string_view what);

/// Name of any type number: a codec's name, the name of a type we only know by name
/// ("iq2_xxs"), or "unknown(199)".
std::string type_name(TypeId id);
/// What would help with a type this version cannot decode, e.g. "I2_S (36): re-encode as TQ1_0".
std::string type_advice(TypeId id);

/// Byte size of a tensor, or nothing when the shape overflows or ne[0] is not a multiple of the
/// block.
std::optional<uint64_t> tensor_bytes(const Codec& codec, const Shape& shape) noexcept;

}  // namespace ts
