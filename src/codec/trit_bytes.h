/// The block body shared by TQ1_0 and PTQ1_0: five base-3 digits in a byte.
///
/// Digits. A trit is code + 1 in {0, 1, 2}. Five trits t0..t4 (t0 most significant) form
/// Q = (((t0*3 + t1)*3 + t2)*3 + t3)*3 + t4 in 0..242, stored as the byte ceil(Q * 256 / 243), a
/// fixed-point fraction: multiplying the byte by 3^n modulo 256 moves digit n to the front, and the
/// integer part of three times that fraction is the digit:
///
///   v = (byte * 3^n) mod 256,  trit = (v * 3) >> 8
///
/// Worked example: trits 0 1 2 0 1 give Q = 46 and the byte (46*256 + 242) / 243 = 49 = 0x31.
/// Digit 1 of 0x31: v = 147, trit = 441 >> 8 = 1. Digit 2: v = 441 mod 256 = 185, trit = 555 >> 8 =
/// 2.
///
/// Regions. The qs bytes are used in stages of 32, then 16, then 8 bytes, each as often as a whole
/// stage fits. A stage of S bytes at element offset e holds element e + S*n + m as digit n of its
/// byte m: digit-major, so that a vector of S bytes gives S consecutive elements. The qh bytes
/// follow, with four digits each (the fifth is 0): element e + H*n + h is digit n of qh[h].
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>

#include "codec/ternary_group.h"

namespace ts {

inline constexpr std::array<uint8_t, 5> kPowersOfThree{1, 3, 9, 27, 81};

/// Digit n (0..4) of a stored byte.
constexpr unsigned trit_of_byte(uint8_t byte, size_t n) noexcept {
  const unsigned v = static_cast<uint8_t>(byte * kPowersOfThree[n]);
  return (v * 3) >> 8;
}

/// The stored byte of a base-3 number 0..242.
constexpr uint8_t byte_of_base3(unsigned q) noexcept {
  return static_cast<uint8_t>((q * 256 + 242) / 243);
}
static_assert(byte_of_base3(46) == 49 && trit_of_byte(49, 1) == 1 && trit_of_byte(49, 2) == 2);

/// True for the bytes an encoder can produce: 243 of 256 with five digits, 81 with four.
constexpr bool is_canonical_trit_byte(uint8_t byte, size_t n_digits) noexcept {
  unsigned q = 0;
  for (size_t n = 0; n < 5; ++n)
    q = q * 3 + (n < n_digits ? trit_of_byte(byte, n) : 0);
  return byte_of_base3(q) == byte;
}

/// The same, looked up: whole models are inspected byte by byte.
template <size_t kDigits>
inline constexpr std::array<bool, 256> kCanonicalTritByte = [] {
  std::array<bool, 256> table{};
  for (size_t byte = 0; byte < 256; ++byte)
    table[byte] = is_canonical_trit_byte(static_cast<uint8_t>(byte), kDigits);
  return table;
}();

/// The bodies qs[kQsBytes], qh[kQhBytes] of one block.
template <size_t kQsBytes, size_t kQhBytes>
struct TritBytes {
  static constexpr size_t kElems = 5 * kQsBytes + 4 * kQhBytes;
  uint8_t qs[kQsBytes];
  uint8_t qh[kQhBytes];

  void decode(float d, float* dst) const noexcept {
    for_each_stage([&](size_t first_byte, size_t n_bytes, size_t first_elem) {
      for (size_t n = 0; n < 5; ++n)
        decode_digit(qs + first_byte, n_bytes, n, d, dst + first_elem + n_bytes * n);
    });
    for (size_t n = 0; n < 4; ++n)
      decode_digit(qh, kQhBytes, n, d, dst + 5 * kQsBytes + kQhBytes * n);
  }

  /// code_at(e) gives the code of element e in {-1, 0, 1}.
  template <class CodeAt>
  void set_codes(CodeAt code_at) noexcept {
    for_each_stage([&](size_t first_byte, size_t n_bytes, size_t first_elem) {
      for (size_t m = 0; m < n_bytes; ++m) {
        unsigned q = 0;
        for (size_t n = 0; n < 5; ++n)
          q = q * 3 + static_cast<unsigned>(code_at(first_elem + n_bytes * n + m) + 1);
        qs[first_byte + m] = byte_of_base3(q);
      }
    });
    for (size_t h = 0; h < kQhBytes; ++h) {
      unsigned q = 0;
      for (size_t n = 0; n < 4; ++n)
        q = q * 3 + static_cast<unsigned>(code_at(5 * kQsBytes + kQhBytes * n + h) + 1);
      qh[h] = byte_of_base3(q * 3);
    }
  }

  uint32_t inspect(uint16_t scale_bits) const noexcept {
    constexpr uint8_t kAllZeroCodes = byte_of_base3(121);  // trits 1 1 1 1 1
    constexpr uint8_t kAllZeroTail = byte_of_base3(120);   // trits 1 1 1 1 0
    bool legal = true;
    bool any_nonzero = false;
    for (const uint8_t byte : qs) {
      legal &= kCanonicalTritByte<5>[byte];
      any_nonzero |= byte != kAllZeroCodes;
    }
    for (const uint8_t byte : qh) {
      legal &= kCanonicalTritByte<4>[byte];
      any_nonzero |= byte != kAllZeroTail;
    }
    return inspect_ternary_group(scale_bits, any_nonzero, false) |
           (legal ? kFindingNone : kFindingIllegalByte);
  }

 private:
  static void decode_digit(const uint8_t* bytes, size_t n_bytes, size_t digit, float d,
                           float* dst) noexcept {
    const unsigned power = kPowersOfThree[digit];
    for (size_t m = 0; m < n_bytes; ++m) {
      const unsigned v = static_cast<uint8_t>(bytes[m] * power);
      dst[m] = static_cast<float>(static_cast<int>((v * 3) >> 8) - 1) * d;
    }
  }

  template <class Stage>
  static void for_each_stage(Stage stage) noexcept {
    size_t first_byte = 0;
    for (const size_t n_bytes : {size_t{32}, size_t{16}, size_t{8}}) {
      while (first_byte + n_bytes <= kQsBytes) {
        stage(first_byte, n_bytes, 5 * first_byte);
        first_byte += n_bytes;
      }
    }
  }
  static_assert(kQsBytes % 8 == 0);
};

}  // namespace ts
