// Every instruction set that this program has and this CPU runs, against the reference.
#include "kernels/kernels.h"

#include <cstdlib>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <tensorsharp/error.hpp>

#include "codec/codec.h"
#include "compare_kernels.h"
#include "kernel_data.h"

namespace ts {
namespace {

class EveryIsa : public testing::TestWithParam<std::string> {
 protected:
  const KernelTable& table() const { return select_kernels(GetParam()).table; }
  const KernelTable& reference() const { return select_kernels("ref").table; }
  // The parameter lives as long as the program.
  const char* isa() const { return GetParam().c_str(); }
};

TEST_P(EveryIsa, HasAllOperations) {
  per_isa::expect_complete(table(), isa());
  EXPECT_EQ(GetParam(), table().isa);
}
TEST_P(EveryIsa, Products) {
  per_isa::compare_products(table(), reference(), isa());
}
TEST_P(EveryIsa, PackedProducts) {
  per_isa::compare_packed(table(), reference(), isa());
}
TEST_P(EveryIsa, Extremes) {
  per_isa::compare_extremes(table(), reference(), isa());
}
TEST_P(EveryIsa, FloatProducts) {
  per_isa::compare_float_products(table(), reference(), isa());
}
TEST_P(EveryIsa, Quantizer) {
  per_isa::compare_quantizer(table(), reference(), isa());
}
TEST_P(EveryIsa, Elementwise) {
  per_isa::compare_elementwise(table(), reference(), isa());
}

TEST_P(EveryIsa, DeltaRule) {
  per_isa::compare_delta_rule(table(), reference(), isa());
}
TEST_P(EveryIsa, Transforms) {
  per_isa::compare_transforms(table(), reference(), isa());
}

std::vector<std::string> isas_here() {
  std::vector<std::string> out;
  for (const std::string_view isa : available_isas(cpu_features()))
    out.emplace_back(isa);
  return out;
}

INSTANTIATE_TEST_SUITE_P(Isa, EveryIsa, testing::ValuesIn(isas_here()),
                         [](const auto& isa) { return isa.param; });

TEST(Unpackers, AgreeWithTheCodecsDecoders) {
  const KernelTable& table = select_kernels("ref").table;
  for (const Codec* codec : all_codecs()) {
    const int format = int_format_of(codec->id);
    if (format < 0) continue;
    const IntFormatInfo& info = kIntFormatInfo[format];
    ASSERT_EQ(info.block_elems, codec->block_elems) << codec->name;
    ASSERT_EQ(info.block_bytes, codec->block_bytes) << codec->name;
    const size_t k = 3 * info.block_elems;
    const std::vector<uint8_t> row = per_isa::random_rows(static_cast<size_t>(format), 1, k, 17);
    std::vector<uint8_t> codes(k);
    std::vector<float> scales(k / 16), mins(k / 16), decoded(k);
    table.unpack[format](row.data(), k, codes.data(), scales.data(), mins.data());
    codec->decode(reinterpret_cast<const std::byte*>(row.data()), decoded.data(), k);
    for (size_t e = 0; e < k; ++e) {
      const int code = info.max_code == 255 ? static_cast<int8_t>(codes[e])
                                            : codes[e] - static_cast<int>(info.offset);
      EXPECT_LE(info.max_code == 255 ? 0 : codes[e], info.max_code) << codec->name;
      float value = static_cast<float>(code) * scales[e / info.group];
      if (info.min_group) value = value + mins[e / info.min_group];
      ASSERT_EQ(value, decoded[e]) << codec->name << " element " << e;
    }
  }
}

TEST(Formats, EveryQuantizedCodecHasKernels) {
  for (const Codec* codec : all_codecs()) {
    const bool wants_int = codec->activation != ActivationForm::kF32;
    EXPECT_EQ(wants_int, int_format_of(codec->id) >= 0) << codec->name;
    if (!wants_int) continue;
    const size_t group = codec->activation == ActivationForm::kInt8Group32   ? 32
                         : codec->activation == ActivationForm::kInt8Group64 ? 64
                                                                             : 128;
    EXPECT_EQ(kIntFormatInfo[int_format_of(codec->id)].act_group, group) << codec->name;
  }
}

TEST(Select, NamesAndErrors) {
  EXPECT_EQ(isa_names().front(), "auto");
  EXPECT_STREQ(select_kernels("ref").table.isa, "ref");
  EXPECT_EQ(select_kernels("auto").table.isa, available_isas(cpu_features()).back());
  try {
    select_kernels("sse9");
    FAIL();
  } catch (const InvalidArgument& e) {
    EXPECT_THAT(e.what(), testing::HasSubstr("avx512_vnni"));
    EXPECT_THAT(e.what(), testing::HasSubstr("sse9"));
  }
  // A CPU without vector extensions gets the reference, and an error for anything more.
  const CpuFeatures nothing;
  EXPECT_STREQ(select_kernels("auto", nothing).table.isa, "ref");
  EXPECT_THROW(select_kernels("avx2", nothing), Unsupported);
  EXPECT_THROW(select_kernels("i8mm", nothing), Unsupported);
}

#if defined(__aarch64__)
TEST(Select, ArmCpusGetWhatTheyHave) {
  CpuFeatures features;
  features.neon = true;
  EXPECT_STREQ(select_kernels("auto", features).table.isa, "ref");
  features.dotprod = true;
  EXPECT_STREQ(select_kernels("auto", features).table.isa, "neon_dotprod");
  EXPECT_THROW(select_kernels("i8mm", features), Unsupported);
  features.i8mm = true;
  EXPECT_STREQ(select_kernels("auto", features).table.isa, "i8mm");
  for (const IntFormat format : {kIntPQ2_0, kIntPTQ1_0, kIntQ2_0, kIntTQ1_0, kIntTQ2_0})
    EXPECT_NE(select_kernels("i8mm", features).table.packed[format].pack, nullptr);
}
#endif

TEST(Select, EnvironmentVariableActs) {
  const char* before = std::getenv("TENSORSHARP_ISA");
  const std::string saved = before ? before : "";
  setenv("TENSORSHARP_ISA", "ref", 1);
  EXPECT_STREQ(select_kernels("").table.isa, "ref");
  setenv("TENSORSHARP_ISA", "bogus", 1);
  EXPECT_THROW(select_kernels(""), InvalidArgument);
  EXPECT_STREQ(select_kernels("ref").table.isa, "ref") << "an explicit name wins";
  if (before)
    setenv("TENSORSHARP_ISA", saved.c_str(), 1);
  else
    unsetenv("TENSORSHARP_ISA");
}

}  // namespace
}  // namespace ts
