/// Q6_K: 256 6-bit codes in sixteen sub-blocks of 16, each with an 8-bit scale, 210 bytes, 6.5625
/// bits per weight. The scale of the super-block comes last.
///
///   byte 0..127    ql[128]: low four bits
///   byte 128..191  qh[64]: high two bits
///   byte 192..207  int8 scale[16]
///   byte 208..209  f16 d (little-endian)
///
/// Element e = 128*n + 32*g + l (n = 0..1, g = 0..3, l = 0..31):
///   low four bits   ql[64*n + 32*(g%2) + l], bits 0..3 if g < 2, bits 4..7 if g >= 2
///   high two bits   qh[32*n + l], bits 2g..2g+1
/// value = (d * scale[e/16]) * (code - 32). Encode: least squares, see kquant_fit.h.
///
/// Worked example: d = 0.5, scale[0] = -7: low bits 9 and high bits 2 make the code 41 and mean
/// (0.5 * -7) * (41 - 32) = -31.5.
#include "codec/block_io.h"
#include "codec/kquant_fit.h"

namespace ts {
namespace {

struct Q6_KBlock {
  uint8_t ql[128];
  uint8_t qh[64];
  uint8_t scale[16];  // two's complement
  HalfField d;
};
static_assert(sizeof(Q6_KBlock) == 210);

void decode_block(const Q6_KBlock& block, float* dst) noexcept {
  const float d = block.d.value();
  for (size_t sub = 0; sub < 16; ++sub, dst += 16) {
    const size_t n = sub / 8;
    const size_t g = sub / 2 % 4;
    const size_t l0 = 16 * (sub % 2);
    const uint8_t* ql = block.ql + 64 * n + 32 * (g % 2) + l0;
    const uint8_t* qh = block.qh + 32 * n + l0;
    const size_t low_shift = 4 * (g / 2);
    const size_t high_shift = 2 * g;
    const float scale = d * static_cast<float>(static_cast<int8_t>(block.scale[sub]));
    for (size_t i = 0; i < 16; ++i) {
      const int code = ((ql[i] >> low_shift) & 15) | (((qh[i] >> high_shift) & 3) << 4);
      dst[i] = scale * static_cast<float>(code - 32);
    }
  }
}

void encode_block(const float* src, Q6_KBlock& block) noexcept {
  const SymmetricSuperBlock fit =
      fit_symmetric(src, {.sub_elems = 16, .min_code = -32, .min_scale = -128});
  block.d.set_bits(fit.d);
  for (size_t k = 0; k < 16; ++k)
    block.scale[k] = static_cast<uint8_t>(fit.scale[k]);
  for (size_t n = 0; n < 2; ++n) {
    for (size_t l = 0; l < 32; ++l) {
      unsigned code[4];
      for (size_t g = 0; g < 4; ++g)
        code[g] = static_cast<unsigned>(fit.code[128 * n + 32 * g + l] + 32);
      uint8_t* ql = block.ql + 64 * n + l;
      ql[0] = static_cast<uint8_t>((code[0] & 15) | ((code[2] & 15) << 4));
      ql[32] = static_cast<uint8_t>((code[1] & 15) | ((code[3] & 15) << 4));
      block.qh[32 * n + l] = static_cast<uint8_t>((code[0] >> 4) | ((code[1] >> 4) << 2) |
                                                  ((code[2] >> 4) << 4) | ((code[3] >> 4) << 6));
    }
  }
}

void decode_q6_k(const std::byte* src, float* dst, size_t n_elems) noexcept {
  const auto* blocks = as_blocks<Q6_KBlock>(src);
  for (size_t b = 0; b < n_elems / kSuperElems; ++b)
    decode_block(blocks[b], dst + b * kSuperElems);
}

void encode_q6_k(const float* src, std::byte* dst, size_t n_elems) noexcept {
  auto* blocks = as_blocks<Q6_KBlock>(dst);
  for (size_t b = 0; b < n_elems / kSuperElems; ++b)
    encode_block(src + b * kSuperElems, blocks[b]);
}

}  // namespace

extern constexpr Codec kCodecQ6_K{
    .id = TypeId::kQ6_K,
    .name = "q6_k",
    .block_elems = kSuperElems,
    .block_bytes = sizeof(Q6_KBlock),
    .activation = ActivationForm::kInt8Group32,
    .exactness = Exactness::kBlock,
    .group_elems = 16,
    .file_type = 18,
    .decode = decode_q6_k,
    .encode = encode_q6_k,
    .pack = nullptr,
    .inspect = nullptr,
};
static_assert(well_formed(kCodecQ6_K));

}  // namespace ts
