/// Q5_0: 32 5-bit codes with one scale, 22 bytes, 5.5 bits per weight.
///
///   byte 0..1   f16 d (little-endian)
///   byte 2..5   qh[4], fifth bits as in nibble_halves.h
///   byte 6..21  qs[16], nibbles as in nibble_halves.h
///
/// value = (code - 16) * d. Encode: m = the signed value of largest magnitude, d = m / -16,
/// code = min(31, trunc(x / d + 16.5)) with the unrounded d.
///
/// Worked example: m = -2 gives d = 0.125 = 0x3000; element 0 = -2 has code 0, element 16 = 0 has
/// code 16 = low nibble 0 and fifth bit 1 (bit 16 of qh), so the block of an even ramp starts 00 30
/// 00 00 ff ff 00.
#include "codec/block_io.h"
#include "codec/nibble_halves.h"
#include "codec/rounding.h"

namespace ts {
namespace {

struct Q5_0Block {
  HalfField d;
  uint8_t qh[4];
  uint8_t qs[kNibbleBytes];
};
static_assert(sizeof(Q5_0Block) == 22);

void decode_q5_0(const std::byte* src, float* dst, size_t n_elems) noexcept {
  const auto* blocks = as_blocks<Q5_0Block>(src);
  for (size_t b = 0; b < n_elems / kNibbleElems; ++b, dst += kNibbleElems) {
    const float d = blocks[b].d.value();
    decode_five_bits(blocks[b].qs, blocks[b].qh, dst,
                     [d](int code) { return static_cast<float>(code - 16) * d; });
  }
}

void encode_q5_0(const float* src, std::byte* dst, size_t n_elems) noexcept {
  auto* blocks = as_blocks<Q5_0Block>(dst);
  for (size_t b = 0; b < n_elems / kNibbleElems; ++b, src += kNibbleElems) {
    const float d = signed_abs_max(src, kNibbleElems) / -16.0f;
    const float id = reciprocal_or_zero(d);
    blocks[b].d.set(d);
    encode_five_bits(blocks[b].qs, blocks[b].qh,
                     [=](size_t j) { return truncate_clamped(src[j] * id + 16.5f, 31); });
  }
}

}  // namespace

extern constexpr Codec kCodecQ5_0{
    .id = TypeId::kQ5_0,
    .name = "q5_0",
    .block_elems = kNibbleElems,
    .block_bytes = sizeof(Q5_0Block),
    .activation = ActivationForm::kInt8Group32,
    .exactness = Exactness::kBlock,
    .group_elems = kNibbleElems,
    .file_type = 8,
    .decode = decode_q5_0,
    .encode = encode_q5_0,
    .pack = nullptr,
    .inspect = nullptr,
};
static_assert(well_formed(kCodecQ5_0));

}  // namespace ts
