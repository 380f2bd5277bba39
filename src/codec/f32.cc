/// F32: IEEE binary32, little-endian, one value in 4 bytes.
///
///   bit 31 sign | 30..23 exponent + 127 | 22..0 mantissa
///
/// Worked example: -2.5 = -1.25 * 2^1 is 0xC0200000, stored 00 00 20 c0.
#include <bit>
#include <cstring>

#include "codec/block_io.h"

namespace ts {
namespace {

// The hosts we build for are little-endian, so the file form is the memory form.
static_assert(std::endian::native == std::endian::little);

void decode_f32(const std::byte* src, float* dst, size_t n_elems) noexcept {
  std::memcpy(dst, src, n_elems * sizeof(float));
}

void encode_f32(const float* src, std::byte* dst, size_t n_elems) noexcept {
  std::memcpy(dst, src, n_elems * sizeof(float));
}

}  // namespace

extern constexpr Codec kCodecF32{
    .id = TypeId::kF32,
    .name = "f32",
    .block_elems = 1,
    .block_bytes = 4,
    .activation = ActivationForm::kF32,
    .exactness = Exactness::kExact,
    .group_elems = 0,
    .file_type = 0,
    .decode = decode_f32,
    .encode = encode_f32,
    .pack = nullptr,
    .inspect = nullptr,
};
static_assert(well_formed(kCodecF32));

}  // namespace ts
