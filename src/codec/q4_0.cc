/// Q4_0: 32 4-bit codes with one scale, 18 bytes, 4.5 bits per weight.
///
///   byte 0..1   f16 d (little-endian)
///   byte 2..17  qs[16], nibbles as in nibble_halves.h
///
/// value = (code - 8) * d. Encode: m = the signed value of largest magnitude, d = m / -8,
/// code = min(15, trunc(x / d + 8.5)) with the unrounded d; so m itself gets the code 0.
///
/// Worked example: m = -2 gives d = 0.25 = 0x3400; element 0 = -2 has code 0, element 16 = 0 has
/// code 8, so the block starts 00 34 80.
#include "codec/block_io.h"
#include "codec/nibble_halves.h"
#include "codec/rounding.h"

namespace ts {
namespace {

struct Q4_0Block {
  HalfField d;
  uint8_t qs[kNibbleBytes];
};
static_assert(sizeof(Q4_0Block) == 18);

void decode_q4_0(const std::byte* src, float* dst, size_t n_elems) noexcept {
  const auto* blocks = as_blocks<Q4_0Block>(src);
  for (size_t b = 0; b < n_elems / kNibbleElems; ++b, dst += kNibbleElems) {
    const float d = blocks[b].d.value();
    decode_nibble_halves(blocks[b].qs, dst,
                         [d](int code) { return static_cast<float>(code - 8) * d; });
  }
}

void encode_q4_0(const float* src, std::byte* dst, size_t n_elems) noexcept {
  auto* blocks = as_blocks<Q4_0Block>(dst);
  for (size_t b = 0; b < n_elems / kNibbleElems; ++b, src += kNibbleElems) {
    const float d = signed_abs_max(src, kNibbleElems) / -8.0f;
    const float id = reciprocal_or_zero(d);
    blocks[b].d.set(d);
    encode_nibble_halves(blocks[b].qs,
                         [=](size_t j) { return truncate_clamped(src[j] * id + 8.5f, 15); });
  }
}

}  // namespace

extern constexpr Codec kCodecQ4_0{
    .id = TypeId::kQ4_0,
    .name = "q4_0",
    .block_elems = kNibbleElems,
    .block_bytes = sizeof(Q4_0Block),
    .activation = ActivationForm::kInt8Group32,
    .exactness = Exactness::kBlock,
    .group_elems = kNibbleElems,
    .file_type = 2,
    .decode = decode_q4_0,
    .encode = encode_q4_0,
    .pack = nullptr,
    .inspect = nullptr,
};
static_assert(well_formed(kCodecQ4_0));

}  // namespace ts
