// Reference unpackers: packed blocks -> codes, scales and minimums of one row (layouts:
// docs/formats). Exact: the codes are the stored integers, the scales the f32 products that the
// decoders use. Precondition: k is a multiple of the block. Arrays are padded by the caller.
#include "base/half.h"
#include "kernels/ref/ref_kernels.h"

namespace ts::ref {
namespace {

float half_at(const uint8_t* p) {
  return half_to_float(static_cast<uint16_t>(p[0] | (p[1] << 8)));
}

/// 32 four-bit codes: byte j holds element j (low) and j + 16 (high).
void nibbles(const uint8_t* qs, uint8_t* codes) {
  for (int j = 0; j < 16; ++j) {
    codes[j] = qs[j] & 15;
    codes[j + 16] = qs[j] >> 4;
  }
}

/// Adds the fifth bits: bit j of the little-endian word belongs to element j.
void fifth_bits(const uint8_t* qh, uint8_t* codes) {
  for (int j = 0; j < 32; ++j)
    codes[j] = static_cast<uint8_t>(codes[j] | ((qh[j / 8] >> (j % 8) & 1) << 4));
}

void q4_0(const uint8_t* row, size_t k, uint8_t* codes, float* scales, float*) {
  for (size_t b = 0; b < k / 32; ++b, row += 18) {
    scales[b] = half_at(row);
    nibbles(row + 2, codes + b * 32);
  }
}

void q4_1(const uint8_t* row, size_t k, uint8_t* codes, float* scales, float* mins) {
  for (size_t b = 0; b < k / 32; ++b, row += 20) {
    scales[b] = half_at(row);
    mins[b] = half_at(row + 2);
    nibbles(row + 4, codes + b * 32);
  }
}

void q5_0(const uint8_t* row, size_t k, uint8_t* codes, float* scales, float*) {
  for (size_t b = 0; b < k / 32; ++b, row += 22) {
    scales[b] = half_at(row);
    nibbles(row + 6, codes + b * 32);
    fifth_bits(row + 2, codes + b * 32);
  }
}

void q5_1(const uint8_t* row, size_t k, uint8_t* codes, float* scales, float* mins) {
  for (size_t b = 0; b < k / 32; ++b, row += 24) {
    scales[b] = half_at(row);
    mins[b] = half_at(row + 2);
    nibbles(row + 8, codes + b * 32);
    fifth_bits(row + 4, codes + b * 32);
  }
}

void q8_0(const uint8_t* row, size_t k, uint8_t* codes, float* scales, float*) {
  for (size_t b = 0; b < k / 32; ++b, row += 34) {
    scales[b] = half_at(row);
    for (int j = 0; j < 32; ++j)
      codes[b * 32 + static_cast<size_t>(j)] = row[2 + j];
  }
}

/// Two-bit field of element e of a 256-element K block.
uint8_t two_bits(const uint8_t* qs, size_t e) {
  return static_cast<uint8_t>((qs[e / 128 * 32 + e % 32] >> (2 * (e % 128 / 32))) & 3);
}

void q2_k(const uint8_t* row, size_t k, uint8_t* codes, float* scales, float* mins) {
  for (size_t b = 0; b < k / 256; ++b, row += 84, codes += 256, scales += 16, mins += 16) {
    const float d = half_at(row + 80);
    const float dmin = half_at(row + 82);
    for (size_t i = 0; i < 16; ++i) {
      scales[i] = d * static_cast<float>(row[i] & 15);
      mins[i] = -(dmin * static_cast<float>(row[i] >> 4));
    }
    for (size_t e = 0; e < 256; ++e)
      codes[e] = two_bits(row + 16, e);
  }
}

void q3_k(const uint8_t* row, size_t k, uint8_t* codes, float* scales, float*) {
  for (size_t b = 0; b < k / 256; ++b, row += 110, codes += 256, scales += 16) {
    const uint8_t* hmask = row;
    const uint8_t* s = row + 96;
    const float d = half_at(row + 108);
    for (size_t i = 0; i < 16; ++i) {
      const int low = i < 8 ? s[i] & 15 : s[i - 8] >> 4;
      const int high = (s[8 + i % 4] >> (2 * (i / 4))) & 3;
      scales[i] = d * static_cast<float>((low | high << 4) - 32);
    }
    for (size_t e = 0; e < 256; ++e) {
      const int bit = (hmask[e % 32] >> (e / 32)) & 1;
      codes[e] = static_cast<uint8_t>(two_bits(row + 32, e) + 4 * bit);  // offset 4
    }
  }
}

/// The six-bit scales and minimums of Q4_K and Q5_K.
void k_scales(const uint8_t* s, float d, float dmin, float* scales, float* mins) {
  for (int i = 0; i < 8; ++i) {
    const int sc = i < 4 ? s[i] & 63 : (s[i + 4] & 15) | ((s[i - 4] >> 6) << 4);
    const int mn = i < 4 ? s[i + 4] & 63 : (s[i + 4] >> 4) | ((s[i] >> 6) << 4);
    scales[i] = d * static_cast<float>(sc);
    mins[i] = -(dmin * static_cast<float>(mn));
  }
}

uint8_t k_nibble(const uint8_t* qs, size_t e) {
  const uint8_t byte = qs[e / 64 * 32 + e % 32];
  return static_cast<uint8_t>(e / 32 % 2 == 0 ? byte & 15 : byte >> 4);
}

void q4_k(const uint8_t* row, size_t k, uint8_t* codes, float* scales, float* mins) {
  for (size_t b = 0; b < k / 256; ++b, row += 144, codes += 256, scales += 8, mins += 8) {
    k_scales(row + 4, half_at(row), half_at(row + 2), scales, mins);
    for (size_t e = 0; e < 256; ++e)
      codes[e] = k_nibble(row + 16, e);
  }
}

void q5_k(const uint8_t* row, size_t k, uint8_t* codes, float* scales, float* mins) {
  for (size_t b = 0; b < k / 256; ++b, row += 176, codes += 256, scales += 8, mins += 8) {
    k_scales(row + 4, half_at(row), half_at(row + 2), scales, mins);
    for (size_t e = 0; e < 256; ++e) {
      const int bit = (row[16 + e % 32] >> (e / 32)) & 1;
      codes[e] = static_cast<uint8_t>(k_nibble(row + 48, e) | bit << 4);
    }
  }
}

void q6_k(const uint8_t* row, size_t k, uint8_t* codes, float* scales, float*) {
  for (size_t b = 0; b < k / 256; ++b, row += 210, codes += 256, scales += 16) {
    const float d = half_at(row + 208);
    for (size_t i = 0; i < 16; ++i)
      scales[i] = d * static_cast<float>(static_cast<int8_t>(row[192 + i]));
    for (size_t e = 0; e < 256; ++e) {
      const size_t n = e / 128, g = e % 128 / 32, l = e % 32;
      const uint8_t low = row[n * 64 + (g & 1) * 32 + l];
      const int high = (row[128 + n * 32 + l] >> (2 * g)) & 3;
      codes[e] = static_cast<uint8_t>((g < 2 ? low & 15 : low >> 4) | high << 4);
    }
  }
}

/// Trit n of a base-3 byte: 0, 1 or 2.
uint8_t trit(uint8_t byte, size_t n) {
  constexpr uint8_t kPower[5] = {1, 3, 9, 27, 81};
  const uint8_t v = static_cast<uint8_t>(byte * kPower[n]);
  return static_cast<uint8_t>((v * 3) >> 8);
}

/// `digits` trits of each of n_bytes bytes, digit-major.
uint8_t* trits(const uint8_t* bytes, size_t n_bytes, size_t digits, uint8_t* codes) {
  for (size_t n = 0; n < digits; ++n) {
    for (size_t m = 0; m < n_bytes; ++m)
      *codes++ = trit(bytes[m], n);
  }
  return codes;
}

void tq1_0(const uint8_t* row, size_t k, uint8_t* codes, float* scales, float*) {
  for (size_t b = 0; b < k / 256; ++b, row += 54) {
    codes = trits(row, 32, 5, codes);
    codes = trits(row + 32, 16, 5, codes);
    codes = trits(row + 48, 4, 4, codes);
    scales[2 * b] = scales[2 * b + 1] = half_at(row + 52);
  }
}

void tq2_0(const uint8_t* row, size_t k, uint8_t* codes, float* scales, float*) {
  for (size_t b = 0; b < k / 256; ++b, row += 66, codes += 256) {
    for (size_t e = 0; e < 256; ++e)
      codes[e] = two_bits(row, e);
    scales[2 * b] = scales[2 * b + 1] = half_at(row + 64);
  }
}

void q1_0(const uint8_t* row, size_t k, uint8_t* codes, float* scales, float*) {
  for (size_t b = 0; b < k / 128; ++b, row += 18) {
    scales[b] = half_at(row);
    for (size_t e = 0; e < 128; ++e)
      *codes++ = static_cast<uint8_t>(((row[2 + e / 8] >> (e % 8)) & 1) * 2);
  }
}

/// Sequential two-bit codes after an f16 scale; `block` elements.
void sequential_two_bits(const uint8_t* row, size_t k, size_t block, uint8_t* codes,
                         float* scales) {
  for (size_t b = 0; b < k / block; ++b, row += 2 + block / 4) {
    scales[b] = half_at(row);
    for (size_t e = 0; e < block; ++e)
      *codes++ = static_cast<uint8_t>((row[2 + e / 4] >> (2 * (e % 4))) & 3);
  }
}

void q2_0(const uint8_t* row, size_t k, uint8_t* codes, float* scales, float*) {
  sequential_two_bits(row, k, 64, codes, scales);
}

void pq2_0(const uint8_t* row, size_t k, uint8_t* codes, float* scales, float*) {
  sequential_two_bits(row, k, 128, codes, scales);
}

void ptq1_0(const uint8_t* row, size_t k, uint8_t* codes, float* scales, float*) {
  for (size_t b = 0; b < k / 128; ++b, row += 28) {
    codes = trits(row, 16, 5, codes);
    codes = trits(row + 16, 8, 5, codes);
    codes = trits(row + 24, 2, 4, codes);
    scales[b] = half_at(row + 26);
  }
}

}  // namespace

void set_unpackers(KernelTable& table) {
  table.unpack[kIntQ4_0] = q4_0;
  table.unpack[kIntQ4_1] = q4_1;
  table.unpack[kIntQ5_0] = q5_0;
  table.unpack[kIntQ5_1] = q5_1;
  table.unpack[kIntQ8_0] = q8_0;
  table.unpack[kIntQ2_K] = q2_k;
  table.unpack[kIntQ3_K] = q3_k;
  table.unpack[kIntQ4_K] = q4_k;
  table.unpack[kIntQ5_K] = q5_k;
  table.unpack[kIntQ6_K] = q6_k;
  table.unpack[kIntTQ1_0] = tq1_0;
  table.unpack[kIntTQ2_0] = tq2_0;
  table.unpack[kIntQ1_0] = q1_0;
  table.unpack[kIntQ2_0] = q2_0;
  table.unpack[kIntPQ2_0] = pq2_0;
  table.unpack[kIntPTQ1_0] = ptq1_0;
}

}  // namespace ts::ref
