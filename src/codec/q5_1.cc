/// Q5_1: 32 5-bit codes with a scale and a minimum, 24 bytes, 6 bits per weight.
///
///   byte 0..1   f16 d (little-endian)
///   byte 2..3   f16 m (little-endian)
///   byte 4..7   qh[4], fifth bits as in nibble_halves.h
///   byte 8..23  qs[16], nibbles as in nibble_halves.h
///
/// value = code * d + m. Encode: m = min, d = (max - min) / 31, code = trunc((x - m) / d + 0.5)
/// with the unrounded d and m.
///
/// Worked example: values -2 .. 1.875 give d = 3.875/31 = 0.125 = 0x3000 and m = -2 = 0xC000;
/// element 16 = 0 has code 16, so the block of an even ramp starts 00 30 00 c0 00 00 ff ff 00.
#include "codec/block_io.h"
#include "codec/nibble_halves.h"
#include "codec/rounding.h"
#include "codec/value_range.h"

namespace ts {
namespace {

struct Q5_1Block {
  HalfField d;
  HalfField m;
  uint8_t qh[4];
  uint8_t qs[kNibbleBytes];
};
static_assert(sizeof(Q5_1Block) == 24);

void decode_q5_1(const std::byte* src, float* dst, size_t n_elems) noexcept {
  const auto* blocks = as_blocks<Q5_1Block>(src);
  for (size_t b = 0; b < n_elems / kNibbleElems; ++b, dst += kNibbleElems) {
    const float d = blocks[b].d.value();
    const float m = blocks[b].m.value();
    decode_five_bits(blocks[b].qs, blocks[b].qh, dst,
                     [=](int code) { return static_cast<float>(code) * d + m; });
  }
}

void encode_q5_1(const float* src, std::byte* dst, size_t n_elems) noexcept {
  auto* blocks = as_blocks<Q5_1Block>(dst);
  for (size_t b = 0; b < n_elems / kNibbleElems; ++b, src += kNibbleElems) {
    const ValueRange range = ValueRange::of(src, kNibbleElems);
    const float d = (range.high - range.low) / 31.0f;
    const float id = reciprocal_or_zero(d);
    blocks[b].d.set(d);
    blocks[b].m.set(range.low);
    encode_five_bits(blocks[b].qs, blocks[b].qh, [=](size_t j) {
      return truncate_clamped((src[j] - range.low) * id + 0.5f, 31);
    });
  }
}

}  // namespace

extern constexpr Codec kCodecQ5_1{
    .id = TypeId::kQ5_1,
    .name = "q5_1",
    .block_elems = kNibbleElems,
    .block_bytes = sizeof(Q5_1Block),
    .activation = ActivationForm::kInt8Group32,
    .exactness = Exactness::kBlock,
    .group_elems = kNibbleElems,
    .file_type = 9,
    .decode = decode_q5_1,
    .encode = encode_q5_1,
    .pack = nullptr,
    .inspect = nullptr,
};
static_assert(well_formed(kCodecQ5_1));

}  // namespace ts
