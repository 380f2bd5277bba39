/// Q1_0: binary, 128 signs with one scale, 18 bytes, 1.125 bits per weight.
///
///   byte 0..1   f16 d (little-endian)
///   byte 2..17  qs[16]: element j is bit j%8 of qs[j/8]
///
/// value = bit ? +d : -d. Encode: d = mean|x|, bit = (x >= 0).
///
/// Worked example: elements 0..7 = - + + - + - + - (bits 0 1 1 0 1 0 1 0, least significant first)
/// make qs[0] = 0x56.
#include <cmath>

#include "codec/block_io.h"

namespace ts {
namespace {

constexpr size_t kElems = 128;

struct Q1_0Block {
  HalfField d;
  uint8_t qs[16];
};
static_assert(sizeof(Q1_0Block) == 18);

void decode_q1_0(const std::byte* src, float* dst, size_t n_elems) noexcept {
  const auto* blocks = as_blocks<Q1_0Block>(src);
  for (size_t b = 0; b < n_elems / kElems; ++b, dst += kElems) {
    const float d = blocks[b].d.value();
    for (size_t i = 0; i < sizeof(blocks[b].qs); ++i) {
      const unsigned byte = blocks[b].qs[i];
      for (size_t k = 0; k < 8; ++k)
        dst[8 * i + k] = ((byte >> k) & 1u) != 0 ? d : -d;
    }
  }
}

void encode_q1_0(const float* src, std::byte* dst, size_t n_elems) noexcept {
  auto* blocks = as_blocks<Q1_0Block>(dst);
  for (size_t b = 0; b < n_elems / kElems; ++b, src += kElems) {
    // In element order: the sum of 128 equal f16 values is then exact, and encoding a decoded block
    // gives its bytes again.
    float sum = 0.0f;
    for (size_t j = 0; j < kElems; ++j)
      sum += std::fabs(src[j]);
    blocks[b].d.set(sum / static_cast<float>(kElems));
    for (size_t i = 0; i < sizeof(blocks[b].qs); ++i) {
      unsigned byte = 0;
      for (size_t k = 0; k < 8; ++k)
        byte |= (src[8 * i + k] >= 0.0f ? 1u : 0u) << k;
      blocks[b].qs[i] = static_cast<uint8_t>(byte);
    }
  }
}

}  // namespace

extern constexpr Codec kCodecQ1_0{
    .id = TypeId::kQ1_0,
    .name = "q1_0",
    .block_elems = kElems,
    .block_bytes = sizeof(Q1_0Block),
    .activation = ActivationForm::kInt8Group128,
    .exactness = Exactness::kBlock,
    .group_elems = kElems,
    .file_type = 40,
    .decode = decode_q1_0,
    .encode = encode_q1_0,
    .pack = nullptr,
    .inspect = nullptr,
};
static_assert(well_formed(kCodecQ1_0));

}  // namespace ts
