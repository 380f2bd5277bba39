/// Q4_1: 32 4-bit codes with a scale and a minimum, 20 bytes, 5 bits per weight.
///
///   byte 0..1   f16 d (little-endian)
///   byte 2..3   f16 m (little-endian)
///   byte 4..19  qs[16], nibbles as in nibble_halves.h
///
/// value = code * d + m. Encode: m = min, d = (max - min) / 15, code = min(15, trunc((x - m) / d +
/// 0.5)) with the unrounded d and m.
///
/// Worked example: values -2 .. 1.875 give d = 3.875/15 = 0x3422 and m = -2 = 0xC000, so the block
/// starts 22 34 00 c0.
#include "codec/block_io.h"
#include "codec/nibble_halves.h"
#include "codec/rounding.h"
#include "codec/value_range.h"

namespace ts {
namespace {

struct Q4_1Block {
  HalfField d;
  HalfField m;
  uint8_t qs[kNibbleBytes];
};
static_assert(sizeof(Q4_1Block) == 20);

void decode_q4_1(const std::byte* src, float* dst, size_t n_elems) noexcept {
  const auto* blocks = as_blocks<Q4_1Block>(src);
  for (size_t b = 0; b < n_elems / kNibbleElems; ++b, dst += kNibbleElems) {
    const float d = blocks[b].d.value();
    const float m = blocks[b].m.value();
    decode_nibble_halves(blocks[b].qs, dst,
                         [=](int code) { return static_cast<float>(code) * d + m; });
  }
}

void encode_q4_1(const float* src, std::byte* dst, size_t n_elems) noexcept {
  auto* blocks = as_blocks<Q4_1Block>(dst);
  for (size_t b = 0; b < n_elems / kNibbleElems; ++b, src += kNibbleElems) {
    const ValueRange range = ValueRange::of(src, kNibbleElems);
    const float d = (range.high - range.low) / 15.0f;
    const float id = reciprocal_or_zero(d);
    blocks[b].d.set(d);
    blocks[b].m.set(range.low);
    encode_nibble_halves(blocks[b].qs, [=](size_t j) {
      return truncate_clamped((src[j] - range.low) * id + 0.5f, 15);
    });
  }
}

}  // namespace

extern constexpr Codec kCodecQ4_1{
    .id = TypeId::kQ4_1,
    .name = "q4_1",
    .block_elems = kNibbleElems,
    .block_bytes = sizeof(Q4_1Block),
    .activation = ActivationForm::kInt8Group32,
    .exactness = Exactness::kBlock,
    .group_elems = kNibbleElems,
    .file_type = 3,
    .decode = decode_q4_1,
    .encode = encode_q4_1,
    .pack = nullptr,
    .inspect = nullptr,
};
static_assert(well_formed(kCodecQ4_1));

}  // namespace ts
