// The K formats: decode vectors, and the quality of the encoders.
#include <cmath>
#include <cstring>
#include <random>

#include "base/sha256.h"
#include "codec/kquant_scales.h"
#include "unit/codec/codec_bytes.h"

namespace ts {
namespace {

struct KVector {
  const char* codec;
  size_t d_offset;
  size_t dmin_offset;  ///< 0 = none
  std::vector<float> first;
  std::vector<float> picked;  ///< [37], [100], [131], [200], [255]
  double sum;
  const char* sha256;
};

TEST(KFormats, DecodeVectors) {
  const KVector vectors[] = {
      {"q4_k",
       0,
       2,
       {46.25f, 0.75f, 59.25f, 13.75f, 72.25f, 26.75f, 85.25f, 39.75f},
       {7.5f, 297, 35.75f, 27, -5.75f},
       26676,
       "e51c06afce308a291525ce5f41bb3983a6c7026341ec7680fb93db5ac495a536"},
      {"q5_k",
       0,
       2,
       {150.25f, 0.75f, 163.25f, 13.75f, 176.25f, 26.75f, 189.25f, 39.75f},
       {205.5f, 337, 203.75f, 27, -5.75f},
       55036,
       "ea6d537c9671cda4e883a70bd7e0049069ebd6b80bd162ce3c50c9d29f6acbd1"},
      {"q6_k",
       208,
       0,
       {80.5f, -23, -310.5f, 322, 34.5f, -69, -356.5f, 276},
       {-615, -1067, -686, -212.5f, 144},
       -7422,
       "80d6e4d08b219367e5c43b6bb11807226098d894620197a732f9653284a87c3e"},
      {"q2_k",
       80,
       82,
       {4, 8.5f, 13, -0.5f, 4, 8.5f, 13, -0.5f},
       {2.75f, 19.25f, -1.75f, 2.75f, -1.75f},
       1021.5,
       "11f876ec405e436a7436e17c9b78c7d5487fb3c77e289ae41ecfad99f71019f8"},
      {"q3_k",
       108,
       0,
       {-3.5f, 7, -10.5f, 14, -3.5f, 7, -10.5f, 14},
       {13.5f, -8.5f, 16, 39, -12},
       117,
       "4b82a32d8a372de53946eecc8f8326e2ac89d1ea5e63565b983a035c4bb58528"},
  };
  for (const KVector& v : vectors) {
    const Codec& codec = codec_named(v.codec);
    std::vector<std::byte> block;
    for (size_t j = 0; j < codec.block_bytes; ++j)
      block.push_back(static_cast<std::byte>((73 * j + 41) % 256));
    block[v.d_offset] = std::byte{0x00};  // 0.5
    block[v.d_offset + 1] = std::byte{0x38};
    if (v.dmin_offset != 0) {
      block[v.dmin_offset] = std::byte{0x00};  // 0.25
      block[v.dmin_offset + 1] = std::byte{0x34};
    }
    const std::vector<float> x = decode(codec, block);
    EXPECT_EQ(std::vector<float>(x.begin(), x.begin() + 8), v.first) << v.codec;
    EXPECT_EQ((std::vector<float>{x[37], x[100], x[131], x[200], x[255]}), v.picked) << v.codec;
    double sum = 0.0;
    for (const float value : x)
      sum += static_cast<double>(value);
    EXPECT_EQ(sum, v.sum) << v.codec;
    EXPECT_EQ(sha256_hex(std::as_bytes(std::span(x))), v.sha256) << v.codec;
  }
}

TEST(KFormats, SixBitScalesRoundTrip) {
  std::mt19937 rng(11);
  for (int trial = 0; trial < 200; ++trial) {
    uint8_t scale[8];
    uint8_t min[8];
    for (size_t i = 0; i < 8; ++i) {
      scale[i] = static_cast<uint8_t>(rng() % 64);
      min[i] = static_cast<uint8_t>(rng() % 64);
    }
    PackedScales6 packed;
    packed.pack(scale, min);
    const PackedScales6::Values v = packed.unpack();
    EXPECT_EQ(std::memcmp(v.scale.data(), scale, 8), 0);
    EXPECT_EQ(std::memcmp(v.min.data(), min, 8), 0);
  }
  PackedScales6 example;
  const uint8_t scale[8] = {0, 0, 0, 0, 37, 0, 0, 0};
  const uint8_t min[8] = {0, 0, 0, 0, 19, 0, 0, 0};
  example.pack(scale, min);
  EXPECT_EQ(example.bytes[0], 0x80);
  EXPECT_EQ(example.bytes[4], 0x40);
  EXPECT_EQ(example.bytes[8], 0x35);
}

double snr_db(const std::vector<float>& x, const std::vector<float>& y) {
  double signal = 0.0;
  double noise = 0.0;
  for (size_t i = 0; i < x.size(); ++i) {
    const double a = static_cast<double>(x[i]);
    const double miss = a - static_cast<double>(y[i]);
    signal += a * a;
    noise += miss * miss;
  }
  return 10.0 * std::log10(signal / noise);
}

std::vector<float> gaussian(size_t n, float mean, float deviation, uint32_t seed) {
  std::mt19937 rng(seed);
  std::normal_distribution<float> normal(mean, deviation);
  std::vector<float> x(n);
  for (float& v : x)
    v = normal(rng);
  return x;
}

struct Quality {
  const char* codec;
  double centred_db;  ///< lower limit on Gaussian weights
  double shifted_db;  ///< lower limit with a mean of minus three deviations
};

TEST(KFormats, EncodersReachTheirSignalToNoiseRatio) {
  // About 0.3 dB below what the encoders reach on this data.
  const Quality limits[] = {
      {"q2_k", 11.3, 21.2}, {"q3_k", 16.5, 20.3}, {"q4_k", 22.7, 32.7}, {"q5_k", 28.9, 38.8},
      {"q6_k", 34.8, 38.3}, {"q8_0", 45.0, 48.5}, {"q4_0", 20.9, 24.5}, {"q4_1", 21.8, 31.8},
      {"q5_0", 26.9, 30.5}, {"q5_1", 28.0, 38.1},
  };
  const std::vector<float> centred = gaussian(256 * 64, 0.0f, 0.02f, 1);
  const std::vector<float> shifted = gaussian(256 * 64, -0.06f, 0.02f, 2);
  for (const Quality& q : limits) {
    const Codec& codec = codec_named(q.codec);
    const double centred_db = snr_db(centred, decode(codec, encode(codec, centred)));
    const double shifted_db = snr_db(shifted, decode(codec, encode(codec, shifted)));
    EXPECT_GE(centred_db, q.centred_db) << q.codec;
    EXPECT_GE(shifted_db, q.shifted_db) << q.codec;
  }
}

}  // namespace
}  // namespace ts
