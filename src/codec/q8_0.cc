/// Q8_0: 32 signed bytes with one scale, 34 bytes, 8.5 bits per weight.
///
///   byte 0..1   f16 d (little-endian)
///   byte 2..33  int8 qs[32], element j is qs[j]
///
/// value = qs * d. Encode: d = max|x| / 127, qs = lround(x / d) with the unrounded d.
///
/// Worked example: max|x| = 2 gives d = 2/127 = 0x2408 in f16; x = -2 is the code -127, and the
/// block starts 08 24 81.
#include "codec/block_io.h"
#include "codec/rounding.h"

namespace ts {
namespace {

constexpr size_t kElems = 32;

struct Q8_0Block {
  HalfField d;
  uint8_t qs[kElems];  // two's complement
};
static_assert(sizeof(Q8_0Block) == 34);

void decode_q8_0(const std::byte* src, float* dst, size_t n_elems) noexcept {
  const auto* blocks = as_blocks<Q8_0Block>(src);
  for (size_t b = 0; b < n_elems / kElems; ++b, dst += kElems) {
    const float d = blocks[b].d.value();
    for (size_t j = 0; j < kElems; ++j)
      dst[j] = static_cast<float>(static_cast<int8_t>(blocks[b].qs[j])) * d;
  }
}

void encode_q8_0(const float* src, std::byte* dst, size_t n_elems) noexcept {
  auto* blocks = as_blocks<Q8_0Block>(dst);
  for (size_t b = 0; b < n_elems / kElems; ++b, src += kElems) {
    const float d = abs_max(src, kElems) / 127.0f;
    const float id = reciprocal_or_zero(d);
    blocks[b].d.set(d);
    for (size_t j = 0; j < kElems; ++j)
      blocks[b].qs[j] = static_cast<uint8_t>(round_half_away(src[j] * id, -127, 127));
  }
}

}  // namespace

extern constexpr Codec kCodecQ8_0{
    .id = TypeId::kQ8_0,
    .name = "q8_0",
    .block_elems = 32,
    .block_bytes = sizeof(Q8_0Block),
    .activation = ActivationForm::kInt8Group32,
    .exactness = Exactness::kBlock,
    .group_elems = 32,
    .file_type = 7,
    .decode = decode_q8_0,
    .encode = encode_q8_0,
    .pack = nullptr,
    .inspect = nullptr,
};
static_assert(well_formed(kCodecQ8_0));

}  // namespace ts
