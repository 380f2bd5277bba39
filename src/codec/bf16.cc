/// BF16: the upper half of an IEEE binary32, little-endian, one value in 2 bytes; round to nearest
/// even, a NaN is made quiet.
///
///   bit 15 sign | 14..7 exponent + 127 | 6..0 mantissa
///
/// Worked example: -2.5 is the binary32 0xC0200000, so 0xC020, stored 20 c0.
#include "codec/block_io.h"

namespace ts {
namespace {

void decode_bf16(const std::byte* src, float* dst, size_t n_elems) noexcept {
  const auto* values = as_blocks<HalfField>(src);  // two little-endian bytes, as for F16
  for (size_t i = 0; i < n_elems; ++i)
    dst[i] = bf16_to_float(values[i].bits());
}

void encode_bf16(const float* src, std::byte* dst, size_t n_elems) noexcept {
  auto* values = as_blocks<HalfField>(dst);
  for (size_t i = 0; i < n_elems; ++i)
    values[i].set_bits(float_to_bf16(src[i]));
}

}  // namespace

extern constexpr Codec kCodecBF16{
    .id = TypeId::kBF16,
    .name = "bf16",
    .block_elems = 1,
    .block_bytes = 2,
    .activation = ActivationForm::kF32,
    .exactness = Exactness::kRounded,
    .group_elems = 0,
    .file_type = 32,
    .decode = decode_bf16,
    .encode = encode_bf16,
    .pack = nullptr,
    .inspect = nullptr,
};
static_assert(well_formed(kCodecBF16));

}  // namespace ts
