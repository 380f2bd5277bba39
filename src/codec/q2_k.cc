/// Q2_K: 256 2-bit codes in sixteen sub-blocks of 16, each with a 4-bit scale and a 4-bit minimum,
/// 84 bytes, 2.625 bits per weight.
///
///   byte 0..15   scale[16]: bits 0..3 the scale, bits 4..7 the minimum of a sub-block
///   byte 16..79  qs[64], 2-bit fields as in two_bit_quarters.h
///   byte 80..81  f16 d (little-endian)
///   byte 82..83  f16 dmin (little-endian)
///
/// value = (d * scale) * code - (dmin * min). Encode: least squares, see kquant_fit.h.
///
/// Worked example: d = 0.5, dmin = 0.25 and the byte 0x29 (scale 9, minimum 2): the code 3 means
/// (0.5 * 9) * 3 - 0.25 * 2 = 13.
#include "codec/block_io.h"
#include "codec/kquant_fit.h"
#include "codec/two_bit_quarters.h"

namespace ts {
namespace {

struct Q2_KBlock {
  uint8_t scale[16];
  uint8_t qs[64];
  HalfField d;
  HalfField dmin;
};
static_assert(sizeof(Q2_KBlock) == 84);

void decode_block(const Q2_KBlock& block, float* dst) noexcept {
  const float d = block.d.value();
  const float dmin = block.dmin.value();
  for (size_t sub = 0; sub < 16; ++sub, dst += 16) {
    const TwoBitSubBlock place = TwoBitSubBlock::of(sub);
    const uint8_t* qs = block.qs + place.first_byte;
    const float scale = d * static_cast<float>(block.scale[sub] & 15);
    const float min = dmin * static_cast<float>(block.scale[sub] >> 4);
    for (size_t i = 0; i < 16; ++i)
      dst[i] = scale * static_cast<float>((qs[i] >> place.shift) & 3) - min;
  }
}

void encode_block(const float* src, Q2_KBlock& block) noexcept {
  const AffineSuperBlock fit = fit_affine(src, {.sub_elems = 16, .max_code = 3, .max_scale = 15});
  for (size_t k = 0; k < 16; ++k)
    block.scale[k] = static_cast<uint8_t>(fit.scale[k] | (fit.min[k] << 4));
  encode_two_bit_quarters(block.qs, [&](size_t e) { return fit.code[e]; });
  block.d.set_bits(fit.d);
  block.dmin.set_bits(fit.dmin);
}

void decode_q2_k(const std::byte* src, float* dst, size_t n_elems) noexcept {
  const auto* blocks = as_blocks<Q2_KBlock>(src);
  for (size_t b = 0; b < n_elems / kSuperElems; ++b)
    decode_block(blocks[b], dst + b * kSuperElems);
}

void encode_q2_k(const float* src, std::byte* dst, size_t n_elems) noexcept {
  auto* blocks = as_blocks<Q2_KBlock>(dst);
  for (size_t b = 0; b < n_elems / kSuperElems; ++b)
    encode_block(src + b * kSuperElems, blocks[b]);
}

}  // namespace

extern constexpr Codec kCodecQ2_K{
    .id = TypeId::kQ2_K,
    .name = "q2_k",
    .block_elems = kSuperElems,
    .block_bytes = sizeof(Q2_KBlock),
    .activation = ActivationForm::kInt8Group32,
    .exactness = Exactness::kBlock,
    .group_elems = 16,
    .file_type = 10,
    .decode = decode_q2_k,
    .encode = encode_q2_k,
    .pack = nullptr,
    .inspect = nullptr,
};
static_assert(well_formed(kCodecQ2_K));

}  // namespace ts
