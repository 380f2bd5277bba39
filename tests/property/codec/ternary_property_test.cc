// Properties of the ternary formats, and all digit patterns, against decoders written separately.
#include <cmath>

#include <rapidcheck.h>

#include "base/half.h"
#include "codec/block_check.h"
#include "property/codec/slow_decoders.h"
#include "unit/codec/codec_bytes.h"

namespace ts {
namespace {

constexpr const char* kTernary[] = {"q2_0", "pq2_0", "ptq1_0", "tq1_0", "tq2_0"};
constexpr size_t kRow = 512;  // a whole number of blocks of each

/// Codes of a row, with a bias drawn per row, so that all-zero groups occur too.
rc::Gen<std::vector<int8_t>> gen_codes(size_t n) {
  return rc::gen::mapcat(rc::gen::inRange(0, 4), [n](int zeros) {
    return rc::gen::container<std::vector<int8_t>>(
        n, rc::gen::map(rc::gen::inRange(-1, 2 + 2 * zeros),
                        [](int v) { return static_cast<int8_t>(v > 1 ? 0 : v); }));
  });
}

/// f16 bits of a positive finite scale, subnormals included.
rc::Gen<uint16_t> gen_scale() {
  return rc::gen::inRange<uint16_t>(1, 0x7C00);
}

std::vector<uint16_t> draw_scales(const Codec& codec) {
  return *rc::gen::container<std::vector<uint16_t>>(kRow / codec.group_elems, gen_scale());
}

std::vector<std::byte> block_of(const Codec& codec, const std::vector<std::byte>& bytes, size_t b) {
  const auto first = bytes.begin() + static_cast<ptrdiff_t>(b * codec.block_bytes);
  return {first, first + codec.block_bytes};
}

TEST(TernaryProperties, PackDecodesToCodesTimesScale) {
  for (const char* name : kTernary) {
    const Codec& codec = codec_named(name);
    EXPECT_TRUE(rc::check(std::string(name) + ": pack then decode", [&] {
      const auto codes = *gen_codes(kRow);
      const auto scales = draw_scales(codec);
      const std::vector<std::byte> bytes = pack(codec, codes, scales);
      const std::vector<float> x = decode(codec, bytes);
      for (size_t e = 0; e < kRow; ++e)
        RC_ASSERT(x[e] ==
                  static_cast<float>(codes[e]) * half_to_float(scales[e / codec.group_elems]));
      // The bytes say the same to the separate decoder.
      for (size_t b = 0; b < kRow / codec.block_elems; ++b) {
        const std::vector<std::byte> block = block_of(codec, bytes, b);
        const std::vector<int> seen = slow::codes_of(name, block);
        for (size_t e = 0; e < codec.block_elems; ++e)
          RC_ASSERT(seen[e] == codes[b * codec.block_elems + e]);
        const size_t at = slow::scale_offset(name, codec.block_bytes);
        RC_ASSERT(slow::byte_at(block, at) + 256 * slow::byte_at(block, at + 1) ==
                  scales[b * codec.block_elems / codec.group_elems]);
        RC_ASSERT((check_block(codec, block.data()) & kFindingFaults) == 0u);
      }
    }));
  }
}

TEST(TernaryProperties, EncodeReproducesPackedBytes) {
  // Except that a group of zeros forgets its scale, packed bytes are the encoder's own.
  for (const char* name : kTernary) {
    const Codec& codec = codec_named(name);
    EXPECT_TRUE(rc::check(std::string(name) + ": decode then encode", [&] {
      const auto codes = *gen_codes(kRow);
      auto scales = draw_scales(codec);
      for (size_t g = 0; g < scales.size(); ++g) {
        bool zeros = true;
        for (size_t e = 0; e < codec.group_elems; ++e)
          zeros = zeros && codes[g * codec.group_elems + e] == 0;
        if (zeros) scales[g] = 0;
      }
      const std::vector<std::byte> bytes = pack(codec, codes, scales);
      const std::vector<float> x = decode(codec, bytes);
      RC_ASSERT(encode(codec, x) == bytes);
      RC_ASSERT(represents_exactly(codec, x));
      RC_ASSERT(check_blocks(codec, bytes).canonical());
    }));
  }
}

TEST(TernaryProperties, BlocksWithoutFindingsAreTheEncodersOwn) {
  // check_block() trusts that for speed. Blocks of an encoder with some bytes changed, the scale's
  // (signs, zeros, infinities) more often than others, and any bytes at all.
  for (const char* name : kTernary) {
    const Codec& codec = codec_named(name);
    EXPECT_TRUE(rc::check(std::string(name) + ": findings and canonical bytes", [&] {
      std::vector<std::byte> block =
          block_of(codec, pack(codec, *gen_codes(kRow), draw_scales(codec)), 0);
      const size_t scale_at = slow::scale_offset(name, codec.block_bytes);
      const int n_changes = *rc::gen::inRange(0, 4);
      for (int i = 0; i < n_changes; ++i)
        block[*rc::gen::inRange<size_t>(0, block.size())] =
            static_cast<std::byte>(*rc::gen::inRange(0, 256));
      const auto high = *rc::gen::element(-1, -1, 0x00, 0x80, 0xB8, 0x7C, 0xFC);
      if (high >= 0) {
        block[scale_at] = std::byte{0};
        block[scale_at + 1] = static_cast<std::byte>(high);
      }
      const std::vector<float> x = decode(codec, block);
      bool finite = true;
      for (const float v : x)
        finite = finite && std::isfinite(v);
      const uint32_t found = check_block(codec, block.data());
      RC_ASSERT(((found & kFindingNonFiniteValue) != 0) == !finite);
      if (finite) RC_ASSERT(((found & kFindingNotCanonical) != 0) == (encode(codec, x) != block));
      if (found == kFindingNone) RC_ASSERT(codec.inspect(block.data()) == kFindingNone);
    }));
  }
}

TEST(TernaryProperties, FormsWithGroupsOf128HoldTheSameValues) {
  const Codec& trits = codec_named("ptq1_0");
  const Codec& pairs = codec_named("pq2_0");
  EXPECT_TRUE(rc::check("ptq1_0 and pq2_0 convert into each other", [&] {
    const auto codes = *gen_codes(kRow);
    const auto scales = draw_scales(trits);
    const std::vector<float> from_trits = decode(trits, pack(trits, codes, scales));
    const std::vector<float> from_pairs = decode(pairs, pack(pairs, codes, scales));
    RC_ASSERT(to_hex(std::as_bytes(std::span(from_trits))) ==
              to_hex(std::as_bytes(std::span(from_pairs))));
    RC_ASSERT(decode(pairs, encode(pairs, from_trits)) == from_pairs);
    RC_ASSERT(decode(trits, encode(trits, from_pairs)) == from_trits);
  }));
}

TEST(TernaryProperties, AnyTwoBitBytesDecodeLikeTheSlowDecoder) {
  for (const char* name : {"q2_0", "pq2_0", "tq2_0"}) {
    const Codec& codec = codec_named(name);
    EXPECT_TRUE(rc::check(std::string(name) + ": any bytes, code 3 included", [&] {
      auto block = *rc::gen::container<std::vector<uint8_t>>(codec.block_bytes,
                                                             rc::gen::arbitrary<uint8_t>());
      std::vector<std::byte> bytes;
      for (const uint8_t b : block)
        bytes.push_back(std::byte{b});
      const size_t at = slow::scale_offset(name, codec.block_bytes);
      bytes[at] = std::byte{0};
      bytes[at + 1] = std::byte{0x3C};  // scale 1
      const std::vector<float> x = decode(codec, bytes);
      const std::vector<int> codes = slow::codes_of(name, bytes);
      for (size_t e = 0; e < x.size(); ++e)
        RC_ASSERT(x[e] == static_cast<float>(codes[e]));
    }));
  }
}

TEST(TritPatterns, All243PatternsInEveryByteAndTheTails) {
  for (const char* name : {"ptq1_0", "tq1_0"}) {
    const Codec& codec = codec_named(name);
    const size_t n = codec.block_elems;
    for (int pattern = 0; pattern < 243; ++pattern) {
      // Every byte of the block gets the same digits; a tail byte has the first four of them.
      int digits[5];
      for (int k = 4, rest = pattern; k >= 0; --k, rest /= 3)
        digits[k] = rest % 3;
      std::vector<int8_t> codes(n);
      for (size_t e = 0; e < n; ++e) {
        const slow::Place p = n == 128 ? slow::place_in_ptq1_0(e) : slow::place_in_tq1_0(e);
        codes[e] = static_cast<int8_t>(digits[p.digit] - 1);
      }
      const std::vector<uint16_t> scales(1, 0x3C00);
      const std::vector<std::byte> bytes = pack(codec, codes, scales);
      const std::vector<float> x = decode(codec, bytes);
      const std::vector<int> seen = slow::codes_of(name, bytes);
      for (size_t e = 0; e < n; ++e) {
        ASSERT_EQ(seen[e], codes[e]) << name << " pattern " << pattern << " element " << e;
        ASSERT_EQ(x[e], static_cast<float>(codes[e])) << name << " pattern " << pattern;
      }
    }
  }
}

TEST(TritPatterns, OneHotElementsLandWhereTheyBelong) {
  for (const char* name : kTernary) {
    const Codec& codec = codec_named(name);
    const std::vector<uint16_t> scales(codec.block_elems / codec.group_elems, 0x4000);
    for (size_t hot = 0; hot < codec.block_elems; ++hot) {
      std::vector<int8_t> codes(codec.block_elems, 0);
      codes[hot] = hot % 2 == 0 ? 1 : -1;
      const std::vector<std::byte> bytes = pack(codec, codes, scales);
      const std::vector<float> x = decode(codec, bytes);
      const std::vector<int> seen = slow::codes_of(name, bytes);
      for (size_t e = 0; e < x.size(); ++e) {
        ASSERT_EQ(x[e], 2.0f * static_cast<float>(codes[e])) << name << " " << hot << " " << e;
        ASSERT_EQ(seen[e], codes[e]) << name << " " << hot << " " << e;
      }
    }
  }
}

}  // namespace
}  // namespace ts
