// Properties every writable format keeps.
#include <cmath>

#include <rapidcheck.h>

#include "codec/block_check.h"
#include "unit/codec/codec_bytes.h"

namespace ts {
namespace {

/// Values k * 2^e with one exponent per row: all sizes of weights, signs, zeros and ties.
rc::Gen<std::vector<float>> gen_row(size_t n) {
  return rc::gen::mapcat(rc::gen::inRange(-20, 4), [n](int exponent) {
    return rc::gen::container<std::vector<float>>(
        n, rc::gen::map(rc::gen::inRange(-1000, 1001), [exponent](int k) {
          return std::ldexp(static_cast<float>(k), exponent - 10);
        }));
  });
}

bool is_k_format(const Codec& codec) {
  return codec.name.ends_with("_k");
}

TEST(EncodeProperties, EncodingADecodedRowChangesNothing) {
  for (const Codec* codec : all_codecs()) {
    // The K encoders search for scales: a second search may find others. The formats with a minimum
    // round scale and minimum on their own, so a decoded block spans a slightly different range.
    if (codec->encode == nullptr || is_k_format(*codec) || codec->name == "q4_1" ||
        codec->name == "q5_1")
      continue;
    EXPECT_TRUE(rc::check(std::string(codec->name) + ": encode(decode(encode(x)))", [&] {
      const std::vector<std::byte> once = encode(*codec, *gen_row(256));
      const std::vector<float> x = decode(*codec, once);
      const std::vector<float> again = decode(*codec, encode(*codec, x));
      RC_ASSERT(again == x);
      RC_ASSERT(represents_exactly(*codec, x));
    }));
  }
}

/// Largest error the format may make in a block, from its step.
float step_of(const Codec& codec, std::span<const float> block) {
  float low = block[0];
  float high = block[0];
  float extreme = 0.0f;
  for (const float v : block) {
    low = std::min(low, v);
    high = std::max(high, v);
    extreme = std::max(extreme, std::fabs(v));
  }
  if (codec.name == "q8_0") return extreme / 127.0f;
  if (codec.name == "q4_0") return extreme / 8.0f;
  if (codec.name == "q5_0") return extreme / 16.0f;
  if (codec.name == "q4_1") return (high - low) / 15.0f;
  return (high - low) / 31.0f;
}

TEST(EncodeProperties, ErrorsStayWithinAStep) {
  for (const char* name : {"q8_0", "q4_0", "q5_0", "q4_1", "q5_1"}) {
    const Codec& codec = codec_named(name);
    EXPECT_TRUE(rc::check(std::string(name) + ": error bound", [&] {
      const std::vector<float> x = *gen_row(32);
      const std::vector<float> y = decode(codec, encode(codec, x));
      const float step = step_of(codec, x);
      float extreme = 0.0f;
      for (const float v : x)
        extreme = std::max(extreme, std::fabs(v));
      // Half a step by rounding (a whole one at the clipped end of the formats whose codes are not
      // symmetric), and what the f16 rounding of scale and minimum moves: 2^-11 of them, or 2^-25,
      // times 127.
      const bool clipped = std::string_view(name) == "q4_0" || std::string_view(name) == "q5_0";
      const float bound = (clipped ? 1.0f : 0.5f) * step + extreme * 0.002f + 4e-6f;
      for (size_t i = 0; i < x.size(); ++i)
        RC_ASSERT(std::fabs(y[i] - x[i]) <= bound);
    }));
  }
}

TEST(EncodeProperties, KFormatsBeatZeroAndStayFinite) {
  for (const char* name : {"q2_k", "q3_k", "q4_k", "q5_k", "q6_k"}) {
    const Codec& codec = codec_named(name);
    EXPECT_TRUE(rc::check(std::string(name) + ": squared error", [&] {
      const std::vector<float> x = *gen_row(256);
      const std::vector<float> y = decode(codec, encode(codec, x));
      double signal = 0.0;
      double noise = 0.0;
      for (size_t i = 0; i < x.size(); ++i) {
        RC_ASSERT(std::isfinite(y[i]));
        signal += std::pow(static_cast<double>(x[i]), 2);
        noise += std::pow(static_cast<double>(x[i] - y[i]), 2);
      }
      // Any block, however uneven: at least 6 dB, until the values come near f16's smallest scale.
      RC_ASSERT(noise <= 0.25 * signal + 256.0 * 0x1p-24 * 0x1p-24);
    }));
  }
}

TEST(EncodeProperties, BlocksAreIndependent) {
  for (const Codec* codec : all_codecs()) {
    if (codec->encode == nullptr) continue;
    EXPECT_TRUE(rc::check(std::string(codec->name) + ": a row is its blocks", [&] {
      const std::vector<float> x = *gen_row(512);
      const std::vector<std::byte> whole = encode(*codec, x);
      std::vector<std::byte> parts = encode(*codec, std::span(x).first(256));
      const std::vector<std::byte> rest = encode(*codec, std::span(x).subspan(256));
      parts.insert(parts.end(), rest.begin(), rest.end());
      RC_ASSERT(parts == whole);
    }));
  }
}

TEST(DecodeProperties, AnyBytesAnyAlignmentSameValues) {
  for (const Codec* codec : all_codecs()) {
    EXPECT_TRUE(rc::check(std::string(codec->name) + ": unaligned blocks", [&] {
      const auto raw = *rc::gen::container<std::vector<uint8_t>>(3 * codec->block_bytes,
                                                                 rc::gen::arbitrary<uint8_t>());
      std::vector<std::byte> aligned;
      for (const uint8_t b : raw)
        aligned.push_back(std::byte{b});
      std::vector<std::byte> shifted(1, std::byte{0});
      shifted.insert(shifted.end(), aligned.begin(), aligned.end());
      const std::vector<float> a = decode(*codec, aligned);
      const std::vector<float> b = decode(*codec, std::span(shifted).subspan(1));
      RC_ASSERT(to_hex(std::as_bytes(std::span(a))) == to_hex(std::as_bytes(std::span(b))));
      check_blocks(*codec, aligned);  // never fails, whatever the bytes
    }));
  }
}

}  // namespace
}  // namespace ts
