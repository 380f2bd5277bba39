/// F16: IEEE binary16, little-endian, one value in 2 bytes; round to nearest even, subnormals kept.
///
///   bit 15 sign | 14..10 exponent + 15 | 9..0 mantissa
///
/// Worked example: -2.5 = -1.25 * 2^1 is 1 10000 0100000000 = 0xC100, stored 00 c1.
#include <bit>

#include "codec/block_io.h"

namespace ts {
namespace {

/// half_to_float without branches, so that the loop vectorizes. Subnormals go through a subtraction
/// of normal numbers: right even where the processor treats binary32 subnormals as zero.
inline float widen(uint16_t h) noexcept {
  const uint32_t sign = static_cast<uint32_t>(h & 0x8000u) << 16;
  const uint32_t shifted = static_cast<uint32_t>(h & 0x7FFFu) << 13;
  const uint32_t exponent = shifted & 0x0F800000u;
  constexpr uint32_t kRebias = 112u << 23;
  const float subnormal =
      std::bit_cast<float>(shifted + kRebias + (1u << 23)) - std::bit_cast<float>(113u << 23);
  uint32_t magnitude = shifted + kRebias;
  magnitude = exponent == 0x0F800000u ? magnitude + kRebias : magnitude;
  magnitude = exponent == 0 ? std::bit_cast<uint32_t>(subnormal) : magnitude;
  return std::bit_cast<float>(sign | magnitude);
}

void decode_f16(const std::byte* src, float* dst, size_t n_elems) noexcept {
  const auto* values = as_blocks<HalfField>(src);
  for (size_t i = 0; i < n_elems; ++i)
    dst[i] = widen(values[i].bits());
}

void encode_f16(const float* src, std::byte* dst, size_t n_elems) noexcept {
  auto* values = as_blocks<HalfField>(dst);
  for (size_t i = 0; i < n_elems; ++i)
    values[i].set(src[i]);
}

}  // namespace

extern constexpr Codec kCodecF16{
    .id = TypeId::kF16,
    .name = "f16",
    .block_elems = 1,
    .block_bytes = 2,
    .activation = ActivationForm::kF32,
    .exactness = Exactness::kRounded,
    .group_elems = 0,
    .file_type = 1,
    .decode = decode_f16,
    .encode = encode_f16,
    .pack = nullptr,
    .inspect = nullptr,
};
static_assert(well_formed(kCodecF16));

}  // namespace ts
