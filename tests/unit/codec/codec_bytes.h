/// Bytes of blocks in the tests of the codecs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "codec/codec.h"

namespace ts {

inline std::string to_hex(std::span<const std::byte> bytes) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string out;
  for (const std::byte b : bytes) {
    out += kDigits[std::to_integer<unsigned>(b) >> 4];
    out += kDigits[std::to_integer<unsigned>(b) & 15];
  }
  return out;
}

inline std::vector<std::byte> from_hex(std::string_view hex) {
  std::vector<std::byte> out;
  EXPECT_EQ(hex.size() % 2, 0u);
  for (size_t i = 0; i + 1 < hex.size(); i += 2)
    out.push_back(static_cast<std::byte>(std::stoul(std::string(hex.substr(i, 2)), nullptr, 16)));
  return out;
}

inline const Codec& codec_named(std::string_view name) {
  const Codec* codec = find_codec(name);
  if (codec == nullptr) throw std::runtime_error("no codec " + std::string(name));
  return *codec;
}

inline std::vector<float> decode(const Codec& codec, std::span<const std::byte> bytes) {
  std::vector<float> out(bytes.size() / codec.block_bytes * codec.block_elems);
  codec.decode(bytes.data(), out.data(), out.size());
  return out;
}

inline std::vector<std::byte> encode(const Codec& codec, std::span<const float> values) {
  std::vector<std::byte> out(codec.row_bytes(values.size()));
  codec.encode(values.data(), out.data(), values.size());
  return out;
}

inline std::vector<std::byte> pack(const Codec& codec, std::span<const int8_t> codes,
                                   std::span<const uint16_t> scales) {
  std::vector<std::byte> out(codec.row_bytes(codes.size()));
  codec.pack(codes.data(), scales.data(), out.data(), codes.size());
  return out;
}

}  // namespace ts
