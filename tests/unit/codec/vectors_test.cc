// Byte-exact vectors of every format that has a normative encoder, both ways.
#include <array>
#include <bit>
#include <cmath>
#include <limits>

#include "unit/codec/codec_bytes.h"

namespace ts {
namespace {

std::vector<float> ramp(int n, float offset, float divisor) {
  std::vector<float> x;
  for (int i = 0; i < n; ++i)
    x.push_back((static_cast<float>(i) - offset) / divisor);
  return x;
}

/// The ternary pattern P: x[i] = 0.5 * (((i + i / 16) mod 3) - 1).
std::vector<int8_t> pattern_codes() {
  std::vector<int8_t> t;
  for (int i = 0; i < 256; ++i)
    t.push_back(static_cast<int8_t>((i + i / 16) % 3 - 1));
  return t;
}

std::vector<float> pattern_values(size_t first, size_t n) {
  std::vector<float> x;
  for (const int8_t t : pattern_codes())
    x.push_back(0.5f * t);
  return {x.begin() + static_cast<ptrdiff_t>(first), x.begin() + static_cast<ptrdiff_t>(first + n)};
}

struct NumberVector {
  const char* codec;
  float value;
  const char* hex;
};

TEST(NumberFormats, KnownValues) {
  const NumberVector vectors[] = {
      {"f32", -2.5f, "000020c0"}, {"f16", 1.0f / 3.0f, "5535"},  {"f16", -2.5f, "00c1"},
      {"f16", 65504.0f, "ff7b"},  {"f16", 6e-8f, "0100"},        {"bf16", 1.0f / 3.0f, "ab3e"},
      {"bf16", -2.5f, "20c0"},    {"bf16", 3.14159274f, "4940"}, {"bf16", 1.00390625f, "803f"},
  };
  for (const NumberVector& v : vectors)
    EXPECT_EQ(to_hex(encode(codec_named(v.codec), std::array{v.value})), v.hex)
        << v.codec << " " << v.value;
}

TEST(NumberFormats, EveryHalfDecodesToItsValueAndBack) {
  const Codec& f16 = codec_named("f16");
  std::vector<std::byte> bytes;
  for (unsigned h = 0; h < 0x10000u; ++h) {
    bytes.push_back(static_cast<std::byte>(h & 0xFFu));
    bytes.push_back(static_cast<std::byte>(h >> 8));
  }
  const std::vector<float> values = decode(f16, bytes);
  for (unsigned h = 0; h < 0x10000u; ++h) {
    const int exponent = static_cast<int>((h >> 10) & 31u);
    const int mantissa = static_cast<int>(h & 1023u);
    const float sign = (h & 0x8000u) != 0 ? -1.0f : 1.0f;
    if (exponent == 31 && mantissa != 0) {
      EXPECT_TRUE(std::isnan(values[h])) << h;
      continue;
    }
    float expected = std::ldexp(static_cast<float>(mantissa), -24);
    if (exponent == 31) expected = std::numeric_limits<float>::infinity();
    if (exponent > 0 && exponent < 31)
      expected = std::ldexp(1.0f + static_cast<float>(mantissa) / 1024.0f, exponent - 15);
    ASSERT_EQ(std::bit_cast<uint32_t>(values[h]), std::bit_cast<uint32_t>(sign * expected)) << h;
    const std::vector<std::byte> again = encode(f16, std::array{values[h]});
    ASSERT_EQ(to_hex(again), to_hex(std::span(bytes).subspan(2 * h, 2)));
  }
}

TEST(NumberFormats, PlainNumbers) {
  EXPECT_EQ(decode(codec_named("i8"), from_hex("fe7f80")), (std::vector<float>{-2, 127, -128}));
  EXPECT_EQ(decode(codec_named("i16"), from_hex("feffff7f")), (std::vector<float>{-2, 32767}));
  EXPECT_EQ(decode(codec_named("i32"), from_hex("feffffff00000001")),
            (std::vector<float>{-2, 16777216}));
  EXPECT_EQ(decode(codec_named("i64"), from_hex("feffffffffffffff0000000001000000")),
            (std::vector<float>{-2, 4294967296.0f}));
  EXPECT_EQ(decode(codec_named("f64"), from_hex("00000000000004c0555555555555d53f")),
            (std::vector<float>{-2.5f, 1.0f / 3.0f}));
  for (const char* name : {"i8", "i16", "i32", "i64", "f64"})
    EXPECT_EQ(codec_named(name).encode, nullptr) << name;
}

struct BlockVector {
  const char* codec;
  std::vector<float> values;
  const char* hex;
};

void expect_encodes(const BlockVector& v) {
  EXPECT_EQ(to_hex(encode(codec_named(v.codec), v.values)), v.hex) << v.codec;
}

TEST(ClassicFormats, EvenRampEncodes) {
  const std::vector<float> x = ramp(32, 16, 8);
  expect_encodes(
      {"q8_0", x, "082481899199a1a9b1b9c0c8d0d8e0e8f0f8000810182028303840474f575f676f77"});
  expect_encodes({"q4_0", x, "0034809191a2a2b3b3c4c4d5d5e6e6f7f7f8"});
  expect_encodes({"q4_1", x, "223400c080809191a2a2b3b3c4c4d5d5e6e6f7f7"});
  expect_encodes({"q5_0", x, "00300000ffff00112233445566778899aabbccddeeff"});
  expect_encodes({"q5_1", x, "003000c00000ffff00112233445566778899aabbccddeeff"});
}

TEST(ClassicFormats, EvenRampDecodesCloseToItself) {
  const std::vector<float> x = ramp(32, 16, 8);
  const std::pair<const char*, float> steps[] = {{"q8_0", 2.0f / 127},
                                                 {"q4_0", 0.25f},
                                                 {"q4_1", 3.875f / 15},
                                                 {"q5_0", 0.125f},
                                                 {"q5_1", 0.125f}};
  for (const auto& [name, step] : steps) {
    const std::vector<float> back = decode(codec_named(name), encode(codec_named(name), x));
    for (size_t i = 0; i < x.size(); ++i)
      EXPECT_NEAR(back[i], x[i], 0.51f * step + 0.002f) << name << " " << i;
  }
  // Both five-bit formats hold this ramp exactly; the first value of Q4_0 is the extreme itself.
  EXPECT_EQ(decode(codec_named("q5_0"), encode(codec_named("q5_0"), x)), x);
  EXPECT_EQ(decode(codec_named("q5_1"), encode(codec_named("q5_1"), x)), x);
  EXPECT_EQ(decode(codec_named("q4_0"), encode(codec_named("q4_0"), x))[0], -2.0f);
}

TEST(TernaryFormats, PatternBothWays) {
  const BlockVector vectors[] = {
      {"pq2_0", pattern_values(0, 128),
       "00382449922492244992499224492449922492244992499224492449922492244992"},
      {"pq2_0", pattern_values(128, 128),
       "00384992244924499224922449924992244924499224922449924992244924499224"},
      {"q2_0", pattern_values(0, 64), "003824499224922449924992244924499224"},
      {"q2_0", pattern_values(64, 64), "003892244992499224492449922492244992"},
      {"q2_0", pattern_values(128, 64), "003849922449244992249224499249922449"},
      {"q2_0", pattern_values(192, 64), "003824499224922449924992244924499224"},
      {"ptq1_0", pattern_values(0, 128),
       "456ccf456ccf456ccf456ccf456ccf455ed1515ed1515ed16cce0038"},
      {"ptq1_0", pattern_values(128, 128),
       "6ccf456ccf456ccf456ccf456ccf456cd1515ed1515ed151ce430038"},
      {"tq1_0", pattern_values(0, 256),
       "3194bb3194bb3194bb3194bb3194bb31bb3194bb3194bb3194bb3194bb3194bb"
       "cf456ccf456ccf456ccf456ccf456ccf3092bb300038"},
      {"tq2_0", pattern_values(0, 256),
       "2449922449922449922449922449922492244992244992244992244992244992"
       "49922449922449922449922449922449244992244992244992244992244992240038"},
  };
  for (const BlockVector& v : vectors) {
    expect_encodes(v);
    EXPECT_EQ(decode(codec_named(v.codec), from_hex(v.hex)), v.values) << v.codec;
  }
  expect_encodes({"q1_0", pattern_values(0, 128), "6035b66d6ddbdbb6b66d6ddbdbb6b66d6ddb"});
}

TEST(TernaryFormats, PackGivesTheSameBytesAsEncode) {
  const std::vector<int8_t> codes = pattern_codes();
  const std::vector<float> values = pattern_values(0, 256);
  for (const char* name : {"q2_0", "pq2_0", "ptq1_0", "tq1_0", "tq2_0"}) {
    const Codec& codec = codec_named(name);
    ASSERT_TRUE(codec.is_ternary()) << name;
    const std::vector<uint16_t> scales(256 / codec.group_elems, 0x3800);
    EXPECT_EQ(to_hex(pack(codec, codes, scales)), to_hex(encode(codec, values))) << name;
  }
}

TEST(TernaryFormats, RampsEncodeWithHalvesAwayFromZero) {
  const std::vector<float> r = ramp(128, 64, 64);
  const auto part = [&](size_t first, size_t n) {
    return std::vector<float>(r.begin() + static_cast<ptrdiff_t>(first),
                              r.begin() + static_cast<ptrdiff_t>(first + n));
  };
  expect_encodes(
      {"pq2_0", r, "003c000000000000000054555555555555555555555555555555aaaaaaaaaaaaaaaa"});
  expect_encodes({"ptq1_0", r, "050e0e0e0e0e0e0e0e0e0e0e0e0e0e0e8e8e8e8e8e8e8e8efdfd003c"});
  expect_encodes({"q2_0", part(0, 64), "003c00000000000000005455555555555555"});
  expect_encodes({"q2_0", part(64, 64), "e03b5555555555555555aaaaaaaaaaaaaaaa"});
  expect_encodes({"q1_0", r, "00380000000000000000ffffffffffffffff"});
  const std::vector<float> r2 = ramp(256, 128, 128);
  expect_encodes({"tq1_0", r2,
                  "050e0e0e0e0e0e0e0e0e0e0e0e0e0e0e0e0e0e0e0e0e0e0e0e0e0e0e0e0e0e0e"
                  "8e8e8e8e8e8e8e8e8e8e8e8e8e8e8e8efdfdfdfd003c"});
  expect_encodes({"tq2_0", r2,
                  "4050505050505050505050505050505050505050505050505050505050505050"
                  "a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5003c"});
}

TEST(TernaryFormats, CodeThreeDecodesToTwoScales) {
  for (const char* name : {"q2_0", "pq2_0", "tq2_0"}) {
    const Codec& codec = codec_named(name);
    std::vector<std::byte> block(codec.block_bytes, std::byte{0xE4});  // codes 0, 1, 2, 3
    // The scale, 0.5, goes first or last; write both ends and keep the one that is the scale.
    const bool scale_last = std::string_view(name) == "tq2_0";
    const size_t at = scale_last ? codec.block_bytes - 2 : 0;
    block[at] = std::byte{0x00};
    block[at + 1] = std::byte{0x38};
    const std::vector<float> x = decode(codec, block);
    std::array<int, 4> seen{};
    for (const float v : x) {
      ASSERT_TRUE(v == -0.5f || v == 0.0f || v == 0.5f || v == 1.0f) << name << " " << v;
      ++seen[static_cast<size_t>(v / 0.5f + 1.0f)];
    }
    const int quarter = static_cast<int>(codec.block_elems / 4);
    EXPECT_EQ(seen, (std::array{quarter, quarter, quarter, quarter})) << name;
  }
}

TEST(AllFormats, ZerosEncodeToZeros) {
  for (const Codec* codec : all_codecs()) {
    if (codec->encode == nullptr) continue;
    const std::vector<float> zeros(256, 0.0f);
    for (const float v : decode(*codec, encode(*codec, zeros)))
      ASSERT_EQ(v, 0.0f) << codec->name;
  }
  EXPECT_EQ(to_hex(encode(codec_named("pq2_0"), std::vector<float>(128, 0.0f))),
            "0000" + std::string(64, '5'));
}

TEST(AllFormats, TinyAndUnevenValuesStayFinite) {
  // Scales that store as zero, single spikes, constants: each must decode to something finite, and
  // zeros around a spike must stay far below it.
  std::vector<std::vector<float>> rows(4, std::vector<float>(256, 0.0f));
  for (size_t i = 0; i < 256; ++i) {
    rows[0][i] = (i % 2 != 0 ? 1e-41f : -1e-42f);
    rows[1][i] = 3.0f;
    rows[2][i] = -3.0f;
  }
  rows[3][77] = 100.0f;
  for (const Codec* codec : all_codecs()) {
    if (codec->encode == nullptr) continue;
    for (size_t r = 0; r < rows.size(); ++r) {
      const std::vector<float> back = decode(*codec, encode(*codec, rows[r]));
      for (size_t i = 0; i < back.size(); ++i) {
        ASSERT_TRUE(std::isfinite(back[i])) << codec->name << " row " << r;
        if (r == 1 || r == 2) {
          ASSERT_NEAR(back[i], rows[r][i], 0.05f) << codec->name;
        }
      }
      if (r == 3 && codec->name != "q1_0") {
        ASSERT_NEAR(back[77], 100.0f, 4.0f) << codec->name;
      }
    }
  }
}

}  // namespace
}  // namespace ts
