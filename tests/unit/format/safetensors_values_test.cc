#include <bit>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "format/safetensors.h"
#include "support/error_matchers.h"
#include "support/gguf_builder.h"

namespace ts {
namespace {

using test::append_value;
using test::as_bytes;
using test::catch_error;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// Values of `bytes` as `dtype`, placed at an odd address.
std::vector<float> decode(const std::string& dtype, const std::string& bytes, size_t n) {
  const std::string shifted = "x" + bytes;
  SafetensorsEntry entry;
  entry.name = "t";
  entry.dtype = dtype;
  entry.shape = {static_cast<int64_t>(n)};
  entry.data = as_bytes(shifted).subspan(1);
  std::vector<float> out(n);
  Safetensors::read_f32(entry, 0, out);
  return out;
}

template <typename T>
std::string pack(const std::vector<T>& values) {
  std::string out;
  for (const T v : values)
    append_value(out, v);
  return out;
}

TEST(SafetensorsValuesTest, EightBitFloats) {
  EXPECT_THAT(decode("F8_E4M3", "\x01\x07\x08\x38\x39\x7e\xfe\xb4", 8),
              ElementsAre(0x1p-9F, 0.013671875F, 0x1p-6F, 1.0F, 1.125F, 448.0F, -448.0F, -0.75F));
  EXPECT_THAT(decode("F8_E5M2", "\x01\x03\x04\x3c\x3d\x7b\xc0", 7),
              ElementsAre(0x1p-16F, 4.57763671875e-5F, 0x1p-14F, 1.0F, 1.25F, 57344.0F, -2.0F));
  const auto e4m3 = decode("F8_E4M3", std::string("\x7f\xff\x80\x00", 4), 4);
  EXPECT_TRUE(std::isnan(e4m3[0]) && std::isnan(e4m3[1]));
  EXPECT_TRUE(e4m3[2] == 0 && std::signbit(e4m3[2]));
  EXPECT_FALSE(std::signbit(e4m3[3]));
  const auto e5m2 = decode("F8_E5M2", "\x7c\xfc\x7d\x7f", 4);
  EXPECT_EQ(e5m2[0], std::numeric_limits<float>::infinity());
  EXPECT_EQ(e5m2[1], -std::numeric_limits<float>::infinity());
  EXPECT_TRUE(std::isnan(e5m2[2]) && std::isnan(e5m2[3]));
  const auto e8m0 = decode("F8_E8M0", std::string("\x00\x01\x7f\x80\xfe\xff", 6), 6);
  EXPECT_EQ(e8m0[0], 0x1p-127F);
  EXPECT_EQ(e8m0[1], 0x1p-126F);
  EXPECT_EQ(e8m0[2], 1.0F);
  EXPECT_EQ(e8m0[3], 2.0F);
  EXPECT_EQ(e8m0[4], 0x1p127F);
  EXPECT_TRUE(std::isnan(e8m0[5]));
}

TEST(SafetensorsValuesTest, WideFloats) {
  EXPECT_THAT(decode("F32", pack<float>({1.5F, -0.0F, 1e30F}), 3), ElementsAre(1.5F, 0.0F, 1e30F));
  EXPECT_THAT(decode("F16", pack<uint16_t>({0x3C00, 0xC000, 0x0001}), 3),
              ElementsAre(1.0F, -2.0F, 0x1p-24F));
  EXPECT_THAT(decode("BF16", pack<uint16_t>({0x3F80, 0xC000}), 2), ElementsAre(1.0F, -2.0F));
  EXPECT_THAT(decode("F64", pack<double>({0.5, 1e300, -1e300}), 3),
              ElementsAre(0.5F, std::numeric_limits<float>::infinity(),
                          -std::numeric_limits<float>::infinity()));
  EXPECT_EQ(decode("F64", pack<double>({3.4028235677973366e38}), 1)[0],
            std::numeric_limits<float>::infinity());
  EXPECT_EQ(decode("F64", pack<double>({3.4028235e38}), 1)[0], std::numeric_limits<float>::max());
}

TEST(SafetensorsValuesTest, IntegersAndBools) {
  EXPECT_THAT(decode("I8", "\x80\x7f", 2), ElementsAre(-128.0F, 127.0F));
  EXPECT_THAT(decode("U8", "\x80\xff", 2), ElementsAre(128.0F, 255.0F));
  EXPECT_THAT(decode("I16", pack<int16_t>({-32768}), 1), ElementsAre(-32768.0F));
  EXPECT_THAT(decode("U16", pack<uint16_t>({65535}), 1), ElementsAre(65535.0F));
  EXPECT_THAT(decode("I32", pack<int32_t>({-5, INT32_MIN}), 2), ElementsAre(-5.0F, -0x1p31F));
  EXPECT_THAT(decode("U32", pack<uint32_t>({UINT32_MAX}), 1), ElementsAre(0x1p32F));
  EXPECT_THAT(decode("I64", pack<int64_t>({-7, INT64_MIN}), 2), ElementsAre(-7.0F, -0x1p63F));
  EXPECT_THAT(decode("U64", pack<uint64_t>({UINT64_MAX}), 1), ElementsAre(0x1p64F));
  EXPECT_THAT(decode("BOOL", std::string("\x00\x01\x02", 3), 3), ElementsAre(0.0F, 1.0F, 1.0F));
}

TEST(SafetensorsValuesTest, PartsOfATensorAndBounds) {
  const std::string bytes = pack<float>({0, 1, 2, 3, 4});
  SafetensorsEntry entry{"t", "F32", {5}, "f.safetensors", as_bytes(bytes)};
  std::vector<float> out(2);
  Safetensors::read_f32(entry, 3, out);
  EXPECT_THAT(out, ElementsAre(3.0F, 4.0F));
  EXPECT_NO_THROW(Safetensors::read_f32(entry, 5, {}));
  for (const int64_t begin : {int64_t{-1}, int64_t{4}, int64_t{5}, INT64_MAX, INT64_MIN}) {
    EXPECT_EQ(catch_error([&] { Safetensors::read_f32(entry, begin, out); }).code,
              ErrorCode::kInvalidArgument);
  }
}

TEST(SafetensorsValuesTest, OtherTypesAreRefusedByName) {
  const std::string bytes(16, '\0');
  for (const char* dtype : {"F4", "F6_E2M3", "F6_E3M2", "C64", "F12_X"}) {
    SafetensorsEntry entry{"odd.weight", dtype, {2}, "f.safetensors", as_bytes(bytes)};
    std::vector<float> out(2);
    const auto e = catch_error([&] { Safetensors::read_f32(entry, 0, out); });
    EXPECT_EQ(e.code, ErrorCode::kUnsupported);
    EXPECT_THAT(e.message, HasSubstr("odd.weight"));
    EXPECT_THAT(e.message, HasSubstr(dtype));
  }
}

}  // namespace
}  // namespace ts
