/// TQ2_0: ternary, 256 2-bit codes interleaved by 32 before one scale, 66 bytes, 2.0625 bits per
/// weight.
///
///   byte 0..63   qs[64]: element 128*h + 32*n + m is bits 2n..2n+1 of qs[32*h + m]
///                (h = 0..1, n = 0..3, m = 0..31)
///   byte 64..65  f16 d (little-endian)
///
///   bit   7 6  | 5 4  | 3 2  | 1 0
///   elem  m+96 | m+64 | m+32 |  m       (of half h)
///
/// value = (code - 1) * d; code 3 means +2d and is never written. Encode: d = max|x|,
/// code = lround(x / d) + 1.
///
/// Worked example: elements 0, 32, 64, 96 with the codes 0, 1, 0, 2 (values -d, 0, -d, +d) make
/// qs[0] = 0 | 1 << 2 | 0 << 4 | 2 << 6 = 0x84.
#include "codec/block_io.h"
#include "codec/ternary_group.h"

namespace ts {
namespace {

constexpr size_t kElems = 256;
constexpr size_t kHalfBytes = 32;

struct TQ2_0Block {
  uint8_t qs[64];
  HalfField d;

  template <class CodeAt>
  void set_codes(CodeAt code_at) noexcept {
    for (size_t h = 0; h < 2; ++h) {
      for (size_t m = 0; m < kHalfBytes; ++m) {
        unsigned byte = 0;
        for (size_t n = 0; n < 4; ++n)
          byte |= static_cast<unsigned>((code_at(128 * h + 32 * n + m) + 1) & 3) << (2 * n);
        qs[kHalfBytes * h + m] = static_cast<uint8_t>(byte);
      }
    }
  }
};
static_assert(sizeof(TQ2_0Block) == 66);

void decode_tq2_0(const std::byte* src, float* dst, size_t n_elems) noexcept {
  const auto* blocks = as_blocks<TQ2_0Block>(src);
  for (size_t b = 0; b < n_elems / kElems; ++b) {
    const float d = blocks[b].d.value();
    for (size_t h = 0; h < 2; ++h) {
      const uint8_t* qs = blocks[b].qs + kHalfBytes * h;
      for (size_t n = 0; n < 4; ++n, dst += 32) {
        for (size_t m = 0; m < kHalfBytes; ++m)
          dst[m] = static_cast<float>(((qs[m] >> (2 * n)) & 3) - 1) * d;
      }
    }
  }
}

void encode_tq2_0(const float* src, std::byte* dst, size_t n_elems) noexcept {
  auto* blocks = as_blocks<TQ2_0Block>(dst);
  for (size_t b = 0; b < n_elems / kElems; ++b, src += kElems) {
    const TernaryScale scale = TernaryScale::of(src, kElems);
    blocks[b].set_codes([&](size_t e) { return scale.code(src[e]); });
    blocks[b].d.set(scale.scale);
  }
}

void pack_tq2_0(const int8_t* codes, const uint16_t* scales, std::byte* dst,
                size_t n_elems) noexcept {
  auto* blocks = as_blocks<TQ2_0Block>(dst);
  for (size_t b = 0; b < n_elems / kElems; ++b, codes += kElems) {
    blocks[b].set_codes([&](size_t e) { return codes[e]; });
    blocks[b].d.set_bits(scales[b]);
  }
}

uint32_t inspect_tq2_0(const std::byte* src) noexcept {
  const auto* block = as_blocks<TQ2_0Block>(src);
  return inspect_two_bit_group(block->d.bits(), block->qs, sizeof(block->qs));
}

}  // namespace

extern constexpr Codec kCodecTQ2_0{
    .id = TypeId::kTQ2_0,
    .name = "tq2_0",
    .block_elems = kElems,
    .block_bytes = sizeof(TQ2_0Block),
    .activation = ActivationForm::kInt8Group128,
    .exactness = Exactness::kTernary,
    .group_elems = kElems,
    .file_type = 37,
    .decode = decode_tq2_0,
    .encode = encode_tq2_0,
    .pack = pack_tq2_0,
    .inspect = inspect_tq2_0,
};
static_assert(well_formed(kCodecTQ2_0));

}  // namespace ts
