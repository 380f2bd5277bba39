/// Q3_K: 256 3-bit codes in sixteen sub-blocks of 16, each with a 6-bit scale, 110 bytes, 3.4375
/// bits per weight.
///
///   byte 0..31     hmask[32]: bit e/32 of hmask[e%32] is the third bit of the code of element e
///   byte 32..95    qs[64], 2-bit fields as in two_bit_quarters.h
///   byte 96..107   s[12], 6-bit scales k = 0..15:
///                  low four bits   k < 8: bits 0..3 of s[k], else bits 4..7 of s[k-8]
///                  high two bits   bits 2*(k/4) .. 2*(k/4)+1 of s[8 + k%4]
///   byte 108..109  f16 d (little-endian)
///
/// value = (d * (scale - 32)) * (code - 4). Encode: least squares, see kquant_fit.h.
///
/// Worked example: d = 0.5; the scale field 0b10_0111 = 39 counts 7; two bits 01 with the third bit
/// clear are the code 1, which means (0.5 * 7) * (1 - 4) = -10.5.
#include "codec/block_io.h"
#include "codec/kquant_fit.h"
#include "codec/two_bit_quarters.h"

namespace ts {
namespace {

struct Q3_KBlock {
  uint8_t hmask[32];
  uint8_t qs[64];
  uint8_t scales[12];
  HalfField d;

  int scale(size_t k) const noexcept {
    const int low = k < 8 ? scales[k] & 15 : scales[k - 8] >> 4;
    const int high = (scales[8 + k % 4] >> (2 * (k / 4))) & 3;
    return (low | (high << 4)) - 32;
  }
};
static_assert(sizeof(Q3_KBlock) == 110);

void decode_block(const Q3_KBlock& block, float* dst) noexcept {
  const float d = block.d.value();
  for (size_t sub = 0; sub < 16; ++sub, dst += 16) {
    const TwoBitSubBlock place = TwoBitSubBlock::of(sub);
    const uint8_t* qs = block.qs + place.first_byte;
    const uint8_t* hmask = block.hmask + 16 * (sub % 2);
    const float scale = d * static_cast<float>(block.scale(sub));
    for (size_t i = 0; i < 16; ++i) {
      const int code = ((qs[i] >> place.shift) & 3) | (((hmask[i] >> (sub / 2)) & 1) << 2);
      dst[i] = scale * static_cast<float>(code - 4);
    }
  }
}

void encode_block(const float* src, Q3_KBlock& block) noexcept {
  const SymmetricSuperBlock fit =
      fit_symmetric(src, {.sub_elems = 16, .min_code = -4, .min_scale = -32});
  for (size_t l = 0; l < 32; ++l) {
    unsigned bits = 0;
    for (size_t i = 0; i < 8; ++i)
      bits |= static_cast<unsigned>(((fit.code[32 * i + l] + 4) >> 2) & 1) << i;
    block.hmask[l] = static_cast<uint8_t>(bits);
  }
  encode_two_bit_quarters(block.qs, [&](size_t e) { return (fit.code[e] + 4) & 3; });
  for (uint8_t& byte : block.scales)
    byte = 0;
  for (size_t k = 0; k < 16; ++k) {
    const auto scale = static_cast<unsigned>(fit.scale[k] + 32);
    uint8_t& low = block.scales[k % 8];
    uint8_t& high = block.scales[8 + k % 4];
    low = static_cast<uint8_t>(low | ((scale & 15u) << (4 * (k / 8))));
    high = static_cast<uint8_t>(high | ((scale >> 4) << (2 * (k / 4))));
  }
  block.d.set_bits(fit.d);
}

void decode_q3_k(const std::byte* src, float* dst, size_t n_elems) noexcept {
  const auto* blocks = as_blocks<Q3_KBlock>(src);
  for (size_t b = 0; b < n_elems / kSuperElems; ++b)
    decode_block(blocks[b], dst + b * kSuperElems);
}

void encode_q3_k(const float* src, std::byte* dst, size_t n_elems) noexcept {
  auto* blocks = as_blocks<Q3_KBlock>(dst);
  for (size_t b = 0; b < n_elems / kSuperElems; ++b)
    encode_block(src + b * kSuperElems, blocks[b]);
}

}  // namespace

extern constexpr Codec kCodecQ3_K{
    .id = TypeId::kQ3_K,
    .name = "q3_k",
    .block_elems = kSuperElems,
    .block_bytes = sizeof(Q3_KBlock),
    .activation = ActivationForm::kInt8Group32,
    .exactness = Exactness::kBlock,
    .group_elems = 16,
    .file_type = 11,
    .decode = decode_q3_k,
    .encode = encode_q3_k,
    .pack = nullptr,
    .inspect = nullptr,
};
static_assert(well_formed(kCodecQ3_K));

}  // namespace ts
