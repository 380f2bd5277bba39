// Blocks of a released ternary model, and blocks made by another implementation.
#include <cstring>
#include <fstream>
#include <iterator>
#include <sstream>

#include "base/half.h"
#include "base/sha256.h"
#include "codec/block_check.h"
#include "unit/codec/codec_bytes.h"

namespace ts {
namespace {

std::string read_file(const std::string& name) {
  std::ifstream in(std::string(TS_TESTDATA_DIR "/codec/").append(name), std::ios::binary);
  if (!in) throw std::runtime_error("cannot open testdata/codec/" + name);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::vector<std::byte> read_blocks(const std::string& name) {
  const std::string text = read_file(name);
  std::vector<std::byte> out(text.size());
  std::memcpy(out.data(), text.data(), text.size());
  return out;
}

/// One row of 5120 released weights: per group of 128 the f16 scale and the codes as - 0 +.
struct TernaryRow {
  std::vector<uint16_t> scales;
  std::vector<int8_t> codes;
};

TernaryRow read_ternary_row() {
  TernaryRow row;
  std::istringstream lines(read_file("ternary_row.codes.txt"));
  std::string scale;
  std::string codes;
  while (lines >> scale >> codes) {
    row.scales.push_back(static_cast<uint16_t>(std::stoul(scale, nullptr, 16)));
    for (const char c : codes)
      row.codes.push_back(static_cast<int8_t>(c == '-' ? -1 : c == '+' ? 1 : 0));
  }
  return row;
}

/// SHA-256 of the row as published with the model's 16-bit form, -0 cleared.
constexpr const char* kRowSha256 =
    "877ba7888844bcd17e03244657f2332cc0b42bd35f5e764d3f0b7a08174d9c40";

TEST(ReleasedModelRow, BothPacksHoldTheSameWeightsAndReencodeToTheSameBytes) {
  const TernaryRow row = read_ternary_row();
  ASSERT_EQ(row.codes.size(), 5120u);
  ASSERT_EQ(row.scales.size(), 40u);
  std::vector<float> expected;
  for (size_t e = 0; e < row.codes.size(); ++e)
    expected.push_back(static_cast<float>(row.codes[e]) * half_to_float(row.scales[e / 128]));
  ASSERT_EQ(sha256_hex(std::as_bytes(std::span(expected))), kRowSha256);

  for (const char* name : {"ptq1_0", "pq2_0"}) {
    const Codec& codec = codec_named(name);
    const std::vector<std::byte> bytes = read_blocks(std::string("ternary_row.") + name);
    ASSERT_EQ(bytes.size(), codec.row_bytes(5120)) << name;
    const std::vector<float> x = decode(codec, bytes);
    EXPECT_EQ(sha256_hex(std::as_bytes(std::span(x))), kRowSha256) << name;
    EXPECT_EQ(encode(codec, x), bytes) << name;
    EXPECT_EQ(pack(codec, row.codes, row.scales), bytes) << name;
    const BlockReport report = check_blocks(codec, bytes);
    EXPECT_EQ(describe(report), "") << name;
  }
}

TEST(ReleasedModelRow, FitsGroupsOf64ButNotOf256) {
  const std::vector<float> x = decode(codec_named("ptq1_0"), read_blocks("ternary_row.ptq1_0"));
  EXPECT_TRUE(represents_exactly(codec_named("q2_0"), x));
  EXPECT_TRUE(represents_exactly(codec_named("f16"), x));
  EXPECT_FALSE(represents_exactly(codec_named("tq1_0"), x));
  EXPECT_FALSE(represents_exactly(codec_named("tq2_0"), x));
}

TEST(OtherImplementation, DecodesAndEncodesTheSame) {
  std::istringstream lines(read_file("reference_blocks.txt"));
  std::string line;
  std::vector<float> x;
  int n_decoded = 0;
  int n_encoded = 0;
  while (std::getline(lines, line)) {
    std::istringstream fields(line);
    std::string kind;
    std::string name;
    std::string hex;
    std::string sha;
    fields >> kind;
    if (kind == "x") {
      fields >> hex;
      x = decode(codec_named("f32"), from_hex(hex));
      continue;
    }
    fields >> name >> hex >> sha;
    const Codec& codec = codec_named(name);
    if (kind == "decode") {
      const std::vector<float> y = decode(codec, from_hex(hex));
      EXPECT_EQ(sha256_hex(std::as_bytes(std::span(y))), sha) << name;
      ++n_decoded;
    } else {
      EXPECT_EQ(to_hex(encode(codec, x)), hex) << name;
      ++n_encoded;
    }
  }
  EXPECT_EQ(n_decoded, 14);
  EXPECT_EQ(n_encoded, 9);
}

}  // namespace
}  // namespace ts
