/// Q5_K: 256 5-bit codes in eight sub-blocks of 32, each with a 6-bit scale and a 6-bit minimum,
/// 176 bytes, 5.5 bits per weight.
///
///   byte 0..1     f16 d (little-endian)
///   byte 2..3     f16 dmin (little-endian)
///   byte 4..15    scales and minima, packed as in kquant_scales.h
///   byte 16..47   qh[32]: bit i of qh[l] is the fifth bit of sub-block i, position l
///   byte 48..175  qs[128]: low four bits, sub-block i, position l in a nibble of qs[(i/2)*32 + l],
///                 bits 0..3 if i is even, bits 4..7 if i is odd
///
/// value = (d * scale[i]) * code - (dmin * min[i]). Encode: least squares, see kquant_fit.h.
///
/// Worked example: d = 0.5, scale[0] = 12, dmin = 0.25, min[0] = 7: the nibble 9 with the fifth bit
/// set is the code 25 and means (0.5 * 12) * 25 - 0.25 * 7 = 148.25.
#include "codec/block_io.h"
#include "codec/kquant_fit.h"
#include "codec/kquant_scales.h"

namespace ts {
namespace {

struct Q5_KBlock {
  HalfField d;
  HalfField dmin;
  PackedScales6 scales;
  uint8_t qh[32];
  uint8_t qs[128];
};
static_assert(sizeof(Q5_KBlock) == 176);

void decode_block(const Q5_KBlock& block, float* dst) noexcept {
  const float d = block.d.value();
  const float dmin = block.dmin.value();
  const PackedScales6::Values s = block.scales.unpack();
  for (size_t i = 0; i < 8; ++i, dst += 32) {
    const uint8_t* qs = block.qs + 32 * (i / 2);
    const size_t shift = 4 * (i % 2);
    const float scale = d * static_cast<float>(s.scale[i]);
    const float min = dmin * static_cast<float>(s.min[i]);
    for (size_t l = 0; l < 32; ++l) {
      const int code = ((qs[l] >> shift) & 15) | (((block.qh[l] >> i) & 1) << 4);
      dst[l] = scale * static_cast<float>(code) - min;
    }
  }
}

void encode_block(const float* src, Q5_KBlock& block) noexcept {
  const AffineSuperBlock fit = fit_affine(src, {.sub_elems = 32, .max_code = 31, .max_scale = 63});
  block.d.set_bits(fit.d);
  block.dmin.set_bits(fit.dmin);
  block.scales.pack(fit.scale.data(), fit.min.data());
  for (size_t l = 0; l < 32; ++l) {
    unsigned high = 0;
    for (size_t i = 0; i < 8; ++i)
      high |= static_cast<unsigned>(fit.code[32 * i + l] >> 4) << i;
    block.qh[l] = static_cast<uint8_t>(high);
    for (size_t p = 0; p < 4; ++p) {
      const uint8_t* code = fit.code.data() + 64 * p;
      block.qs[32 * p + l] = static_cast<uint8_t>((code[l] & 15) | ((code[32 + l] & 15) << 4));
    }
  }
}

void decode_q5_k(const std::byte* src, float* dst, size_t n_elems) noexcept {
  const auto* blocks = as_blocks<Q5_KBlock>(src);
  for (size_t b = 0; b < n_elems / kSuperElems; ++b)
    decode_block(blocks[b], dst + b * kSuperElems);
}

void encode_q5_k(const float* src, std::byte* dst, size_t n_elems) noexcept {
  auto* blocks = as_blocks<Q5_KBlock>(dst);
  for (size_t b = 0; b < n_elems / kSuperElems; ++b)
    encode_block(src + b * kSuperElems, blocks[b]);
}

}  // namespace

extern constexpr Codec kCodecQ5_K{
    .id = TypeId::kQ5_K,
    .name = "q5_k",
    .block_elems = kSuperElems,
    .block_bytes = sizeof(Q5_KBlock),
    .activation = ActivationForm::kInt8Group32,
    .exactness = Exactness::kBlock,
    .group_elems = 32,
    .file_type = 16,
    .decode = decode_q5_k,
    .encode = encode_q5_k,
    .pack = nullptr,
    .inspect = nullptr,
};
static_assert(well_formed(kCodecQ5_K));

}  // namespace ts
