/// Q4_K: 256 4-bit codes in eight sub-blocks of 32, each with a 6-bit scale and a 6-bit minimum,
/// 144 bytes, 4.5 bits per weight.
///
///   byte 0..1     f16 d (little-endian)
///   byte 2..3     f16 dmin (little-endian)
///   byte 4..15    scales and minima, packed as in kquant_scales.h
///   byte 16..143  qs[128]: sub-block i, position l is a nibble of qs[(i/2)*32 + l],
///                 bits 0..3 if i is even, bits 4..7 if i is odd
///
/// value = (d * scale[i]) * code - (dmin * min[i]). Encode: least squares, see kquant_fit.h.
///
/// Worked example: d = 0.5, scale[0] = 12, dmin = 0.25, min[0] = 7: the code 9 means
/// (0.5 * 12) * 9 - 0.25 * 7 = 52.25.
#include "codec/block_io.h"
#include "codec/kquant_fit.h"
#include "codec/kquant_scales.h"

namespace ts {
namespace {

struct Q4_KBlock {
  HalfField d;
  HalfField dmin;
  PackedScales6 scales;
  uint8_t qs[128];
};
static_assert(sizeof(Q4_KBlock) == 144);

void decode_block(const Q4_KBlock& block, float* dst) noexcept {
  const float d = block.d.value();
  const float dmin = block.dmin.value();
  const PackedScales6::Values s = block.scales.unpack();
  for (size_t p = 0; p < 4; ++p, dst += 64) {
    const uint8_t* qs = block.qs + 32 * p;
    const float scale0 = d * static_cast<float>(s.scale[2 * p]);
    const float scale1 = d * static_cast<float>(s.scale[2 * p + 1]);
    const float min0 = dmin * static_cast<float>(s.min[2 * p]);
    const float min1 = dmin * static_cast<float>(s.min[2 * p + 1]);
    for (size_t l = 0; l < 32; ++l)
      dst[l] = scale0 * static_cast<float>(qs[l] & 15) - min0;
    for (size_t l = 0; l < 32; ++l)
      dst[32 + l] = scale1 * static_cast<float>(qs[l] >> 4) - min1;
  }
}

void encode_block(const float* src, Q4_KBlock& block) noexcept {
  const AffineSuperBlock fit = fit_affine(src, {.sub_elems = 32, .max_code = 15, .max_scale = 63});
  block.d.set_bits(fit.d);
  block.dmin.set_bits(fit.dmin);
  block.scales.pack(fit.scale.data(), fit.min.data());
  for (size_t p = 0; p < 4; ++p) {
    const uint8_t* code = fit.code.data() + 64 * p;
    for (size_t l = 0; l < 32; ++l)
      block.qs[32 * p + l] = static_cast<uint8_t>(code[l] | (code[32 + l] << 4));
  }
}

void decode_q4_k(const std::byte* src, float* dst, size_t n_elems) noexcept {
  const auto* blocks = as_blocks<Q4_KBlock>(src);
  for (size_t b = 0; b < n_elems / kSuperElems; ++b)
    decode_block(blocks[b], dst + b * kSuperElems);
}

void encode_q4_k(const float* src, std::byte* dst, size_t n_elems) noexcept {
  auto* blocks = as_blocks<Q4_KBlock>(dst);
  for (size_t b = 0; b < n_elems / kSuperElems; ++b)
    encode_block(src + b * kSuperElems, blocks[b]);
}

}  // namespace

extern constexpr Codec kCodecQ4_K{
    .id = TypeId::kQ4_K,
    .name = "q4_k",
    .block_elems = kSuperElems,
    .block_bytes = sizeof(Q4_KBlock),
    .activation = ActivationForm::kInt8Group32,
    .exactness = Exactness::kBlock,
    .group_elems = 32,
    .file_type = 14,
    .decode = decode_q4_k,
    .encode = encode_q4_k,
    .pack = nullptr,
    .inspect = nullptr,
};
static_assert(well_formed(kCodecQ4_K));

}  // namespace ts
