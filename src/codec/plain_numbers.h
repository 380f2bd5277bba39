/// Decoding shared by the plain number types (I8 .. I64, F64): little-endian values without a
/// scale. Each value becomes the nearest binary32; these types are read, never written.
#pragma once

#include <bit>
#include <cstring>

#include "codec/block_io.h"

namespace ts {

template <class Number>
void decode_plain_numbers(const std::byte* src, float* dst, size_t n_elems) noexcept {
  static_assert(std::endian::native == std::endian::little);
  for (size_t i = 0; i < n_elems; ++i) {
    Number value;
    std::memcpy(&value, src + i * sizeof(Number), sizeof(Number));
    dst[i] = static_cast<float>(value);
  }
}

}  // namespace ts
