#include "codec/block_check.h"

#include <cmath>
#include <limits>

#include <gmock/gmock.h>

#include <tensorsharp/error.hpp>

#include "unit/codec/codec_bytes.h"

namespace ts {
namespace {

using ::testing::HasSubstr;

constexpr const char* kPattern = "456ccf456ccf456ccf456ccf456ccf455ed1515ed1515ed16cce0038";

TEST(BlockCheck, CleanBlocksHaveNoFindings) {
  std::string pattern = kPattern;
  pattern += kPattern;
  const std::vector<std::byte> blocks = from_hex(pattern);
  const BlockReport report = check_blocks(codec_named("ptq1_0"), blocks);
  EXPECT_EQ(report.n_blocks, 2u);
  EXPECT_FALSE(report.has_faults());
  EXPECT_TRUE(report.canonical());
  EXPECT_EQ(describe(report), "");
}

TEST(BlockCheck, NonCanonicalTritBytesAreFaults) {
  for (const char* name : {"ptq1_0", "tq1_0"}) {
    const Codec& codec = codec_named(name);
    const std::vector<std::byte> zero = encode(codec, std::vector<float>(codec.block_elems, 0.0f));
    int illegal_first = 0;
    int illegal_tail = 0;
    for (unsigned value = 0; value < 256; ++value) {
      std::vector<std::byte> block = zero;
      block[0] = static_cast<std::byte>(value);
      illegal_first += (check_block(codec, block.data()) & kFindingIllegalByte) != 0 ? 1 : 0;
      block = zero;
      block[codec.block_bytes - 3] = static_cast<std::byte>(value);
      illegal_tail += (check_block(codec, block.data()) & kFindingIllegalByte) != 0 ? 1 : 0;
    }
    EXPECT_EQ(illegal_first, 256 - 243) << name;
    EXPECT_EQ(illegal_tail, 256 - 81) << name;
  }
}

TEST(BlockCheck, NamesTheFirstBadBlock) {
  std::vector<std::byte> blocks;
  for (int i = 0; i < 5; ++i) {
    const std::vector<std::byte> one = from_hex(kPattern);
    blocks.insert(blocks.end(), one.begin(), one.end());
  }
  blocks[3 * 28 + 27] = std::byte{0x7C};  // scale infinity
  blocks[4 * 28 + 27] = std::byte{0xB8};  // scale -0.5
  const BlockReport report = check_blocks(codec_named("ptq1_0"), blocks);
  EXPECT_TRUE(report.has_faults());
  EXPECT_EQ(report.count(kFindingNonFiniteScale).n_blocks, 1u);
  EXPECT_EQ(report.count(kFindingNonFiniteScale).first_block, 3u);
  EXPECT_EQ(report.count(kFindingNonFiniteValue).first_block, 3u);
  EXPECT_EQ(report.count(kFindingNegativeScale).first_block, 4u);
  EXPECT_EQ(report.count(kFindingNotCanonical).first_block, 4u);
  EXPECT_THAT(describe(report), HasSubstr("non-finite scale: 1 of 5 blocks, first in block 3"));
}

TEST(BlockCheck, NotesOnTernaryGroups) {
  const Codec& pq = codec_named("pq2_0");
  const auto findings = [&](const std::string& hex) {
    return check_block(pq, from_hex(hex).data());
  };
  const std::string zeros(64, '5');
  EXPECT_EQ(findings("0000" + zeros), uint32_t{kFindingNone});
  EXPECT_EQ(findings("0038" + zeros), kFindingScaleOnZeros | kFindingNotCanonical);
  EXPECT_EQ(findings("0000" + std::string(64, 'a')),
            kFindingCodesOnZeroScale | kFindingNotCanonical);
  EXPECT_EQ(findings("0038" + std::string(64, 'f')), kFindingCodePlusTwo | kFindingNotCanonical);
  EXPECT_EQ(findings("0038" + std::string(64, 'a')), uint32_t{kFindingNone});
  EXPECT_EQ(findings("00b8" + std::string(64, 'a')), kFindingNegativeScale | kFindingNotCanonical);
  EXPECT_EQ(findings("007e" + std::string(64, 'a')),
            kFindingNonFiniteScale | kFindingNonFiniteValue);
  // None of the notes is a fault.
  for (const char* head : {"0038", "00b8"})
    EXPECT_EQ(findings(head + zeros) & kFindingFaults, 0u);
}

TEST(BlockCheck, NonFiniteValuesOfEveryFormat) {
  for (const Codec* codec : all_codecs()) {
    std::vector<std::byte> block(codec->block_bytes, std::byte{0xFF});
    const bool float_like = codec->name[0] != 'i';  // the integers have no such pattern
    EXPECT_EQ((check_block(*codec, block.data()) & kFindingNonFiniteValue) != 0, float_like)
        << codec->name;
  }
}

TEST(BlockCheck, ReportsAppendWithShiftedBlockNumbers) {
  const Codec& f16 = codec_named("f16");
  BlockReport report = check_blocks(f16, from_hex("003c003c003c"));
  report.append(check_blocks(f16, from_hex("003c007c")));
  report.append(check_blocks(f16, from_hex("007c")));
  EXPECT_EQ(report.n_blocks, 6u);
  EXPECT_EQ(report.count(kFindingNonFiniteValue).n_blocks, 2u);
  EXPECT_EQ(report.count(kFindingNonFiniteValue).first_block, 4u);
}

TEST(RepresentsExactly, TernaryRowsAndTheirFirstMisfit) {
  std::vector<float> row(256);
  for (size_t i = 0; i < row.size(); ++i)
    row[i] = static_cast<float>(static_cast<int>(i % 3) - 1) * (i < 128 ? 0.5f : 0.25f);
  // A scale for every 128 values: the groups of 128 and 64 hold it, the groups of 256 do not.
  for (const char* name : {"pq2_0", "ptq1_0", "q2_0", "f32", "f16", "bf16"})
    EXPECT_TRUE(represents_exactly(codec_named(name), row)) << name;
  for (const char* name : {"tq1_0", "tq2_0"})
    EXPECT_GE(first_inexact(codec_named(name), row).value_or(0), 128u) << name;
  row[5] = -0.0f;
  EXPECT_TRUE(represents_exactly(codec_named("pq2_0"), row));
  row[200] = 0.24f;
  EXPECT_EQ(first_inexact(codec_named("pq2_0"), row), 200u);
  EXPECT_TRUE(represents_exactly(codec_named("f32"), row));
  row[200] = std::numeric_limits<float>::quiet_NaN();
  for (const char* name : {"pq2_0", "f32", "f16", "q8_0", "q4_k"})
    EXPECT_FALSE(represents_exactly(codec_named(name), row)) << name;
  EXPECT_FALSE(represents_exactly(codec_named("i8"), row));
}

TEST(RepresentsExactly, ScaleThatBinary16CannotHold) {
  std::vector<float> row(128);
  for (size_t i = 0; i < row.size(); ++i)
    row[i] = static_cast<float>(static_cast<int>(i % 3) - 1) * 1.555f;
  EXPECT_EQ(first_inexact(codec_named("pq2_0"), row), 0u);
}

TEST(EncodeRow, RefusesBadInput) {
  const Codec& pq = codec_named("pq2_0");
  std::vector<float> row(256, 1.0f);
  std::vector<std::byte> out(68);
  EXPECT_NO_THROW(encode_row(pq, row, out, "t"));
  EXPECT_THROW(encode_row(pq, std::span(row).first(192), out, "t"), InvalidArgument);
  EXPECT_THROW(encode_row(pq, row, std::span(out).first(67), "t"), InvalidArgument);
  EXPECT_THROW(encode_row(codec_named("i8"), row, out, "t"), Unsupported);
  row[131] = 1e9f;  // finite, but its scale is not a binary16 number
  EXPECT_THROW(encode_row(pq, row, out, "t"), InvalidArgument);
  row[131] = std::numeric_limits<float>::infinity();
  try {
    encode_row(pq, row, out, "blk.0.attn_q.weight");
    FAIL() << "an infinite value was encoded";
  } catch (const InvalidArgument& e) {
    EXPECT_THAT(e.what(), HasSubstr("blk.0.attn_q.weight"));
    EXPECT_THAT(e.what(), HasSubstr("131"));
  }
}

}  // namespace
}  // namespace ts
