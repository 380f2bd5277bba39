#include <algorithm>
#include <iterator>

#include <tensorsharp/error.hpp>

#include "codec/block_io.h"
#include "unit/codec/codec_bytes.h"

namespace ts {
namespace {

struct ExpectedRow {
  uint32_t id;
  const char* name;
  uint32_t elems;
  uint32_t bytes;
  int32_t file_type;
};

TEST(Registry, ListsEveryFormatInOrderWithItsGeometry) {
  const ExpectedRow rows[] = {
      {0, "f32", 1, 4, 0},        {1, "f16", 1, 2, 1},          {2, "q4_0", 32, 18, 2},
      {3, "q4_1", 32, 20, 3},     {6, "q5_0", 32, 22, 8},       {7, "q5_1", 32, 24, 9},
      {8, "q8_0", 32, 34, 7},     {10, "q2_k", 256, 84, 10},    {11, "q3_k", 256, 110, 11},
      {12, "q4_k", 256, 144, 14}, {13, "q5_k", 256, 176, 16},   {14, "q6_k", 256, 210, 18},
      {24, "i8", 1, 1, -1},       {25, "i16", 1, 2, -1},        {26, "i32", 1, 4, -1},
      {27, "i64", 1, 8, -1},      {28, "f64", 1, 8, -1},        {30, "bf16", 1, 2, 32},
      {34, "tq1_0", 256, 54, 36}, {35, "tq2_0", 256, 66, 37},   {41, "q1_0", 128, 18, 40},
      {42, "q2_0", 64, 18, 41},   {142, "pq2_0", 128, 34, 141}, {143, "ptq1_0", 128, 28, 143},
  };
  ASSERT_EQ(all_codecs().size(), std::size(rows));
  for (size_t i = 0; i < std::size(rows); ++i) {
    const Codec& c = *all_codecs()[i];
    EXPECT_EQ(static_cast<uint32_t>(c.id), rows[i].id);
    EXPECT_EQ(c.name, rows[i].name);
    EXPECT_EQ(c.block_elems, rows[i].elems) << c.name;
    EXPECT_EQ(c.block_bytes, rows[i].bytes) << c.name;
    EXPECT_EQ(c.file_type, rows[i].file_type) << c.name;
    EXPECT_TRUE(well_formed(c)) << c.name;
    EXPECT_NE(c.decode, nullptr) << c.name;
    EXPECT_EQ(c.is_ternary(), c.exactness == Exactness::kTernary) << c.name;
    EXPECT_EQ(c.is_ternary(), c.inspect != nullptr) << c.name;
    EXPECT_EQ(find_codec(c.id), &c);
    EXPECT_EQ(find_codec(c.name), &c);
    EXPECT_EQ(&require_codec(c.id, "x"), &c);
    EXPECT_EQ(type_name(c.id), c.name);
  }
}

TEST(Registry, ActivationForms) {
  const auto form = [](const char* name) { return codec_named(name).activation; };
  for (const char* name : {"f32", "f16", "bf16", "i8", "i16", "i32", "i64", "f64"})
    EXPECT_EQ(form(name), ActivationForm::kF32) << name;
  for (const char* name :
       {"q8_0", "q4_0", "q4_1", "q5_0", "q5_1", "q2_k", "q3_k", "q4_k", "q5_k", "q6_k"})
    EXPECT_EQ(form(name), ActivationForm::kInt8Group32) << name;
  EXPECT_EQ(form("q2_0"), ActivationForm::kInt8Group64);
  for (const char* name : {"pq2_0", "ptq1_0", "tq1_0", "tq2_0", "q1_0"})
    EXPECT_EQ(form(name), ActivationForm::kInt8Group128) << name;
}

TEST(Registry, NamesIgnoreCase) {
  EXPECT_EQ(find_codec("PQ2_0"), find_codec(TypeId::kPQ2_0));
  EXPECT_EQ(find_codec("Q4_K"), find_codec(TypeId::kQ4_K));
  EXPECT_EQ(find_codec("q4_"), nullptr);
  EXPECT_EQ(find_codec(""), nullptr);
  EXPECT_EQ(find_codec("iq2_xxs"), nullptr);
}

TEST(Registry, TypesKnownByNameHaveAdvice) {
  EXPECT_EQ(type_name(TypeId{16}), "iq2_xxs");
  EXPECT_EQ(type_name(TypeId{36}), "i2_s");
  EXPECT_EQ(type_name(TypeId{199}), "unknown(199)");
  EXPECT_NE(type_advice(TypeId{36}).find("I2_S (36)"), std::string::npos);
  EXPECT_NE(type_advice(TypeId{36}).find("TQ1_0"), std::string::npos);
  EXPECT_NE(type_advice(TypeId{199}).find("199"), std::string::npos);
  // Every number of the public list is either decoded or named; the numbers beyond are neither.
  for (uint32_t id = 0; id <= 42; ++id)
    EXPECT_EQ(type_name(TypeId{id}).find("unknown"), std::string::npos) << id;
  for (uint32_t id = 43; id < 300; ++id) {
    if (id == 142 || id == 143) continue;
    EXPECT_EQ(find_codec(TypeId{id}), nullptr) << id;
    EXPECT_EQ(type_name(TypeId{id}), "unknown(" + std::to_string(id) + ")");
  }
}

TEST(Registry, RequireNamesTensorNumberAndType) {
  const auto message = [](uint32_t id) -> std::string {
    try {
      require_codec(TypeId{id}, "m.gguf: tensor output.weight");
    } catch (const Unsupported& e) {
      return e.what();
    }
    return "";
  };
  for (const uint32_t id : {4u, 9u, 17u, 31u, 36u, 39u, 199u, 0xFFFFFFFFu}) {
    const std::string text = message(id);
    EXPECT_NE(text.find("output.weight"), std::string::npos) << id;
    EXPECT_NE(text.find(std::to_string(id)), std::string::npos) << id;
    EXPECT_EQ(text.find("overflow"), std::string::npos) << id;
    EXPECT_LE(std::count(text.begin(), text.end(), '\n'), 2) << text;
  }
  EXPECT_NE(message(17).find("IQ2_XS (17)"), std::string::npos);
  EXPECT_NE(message(36).find("I2_S (36)"), std::string::npos);
}

TEST(Registry, TensorBytesChecksShapes) {
  const Codec& ptq = codec_named("ptq1_0");
  EXPECT_EQ(tensor_bytes(ptq, {256, 3}), 168u);
  EXPECT_EQ(tensor_bytes(ptq, {128, 2, 3, 4}), 28u * 24u);
  EXPECT_EQ(tensor_bytes(ptq, {0, 3}), 0u);
  EXPECT_EQ(tensor_bytes(ptq, {192, 3}), std::nullopt);
  EXPECT_EQ(tensor_bytes(ptq, {-128, 3}), std::nullopt);
  EXPECT_EQ(tensor_bytes(ptq, {INT64_MAX / 128 * 128, 128}), std::nullopt);
  EXPECT_EQ(tensor_bytes(codec_named("i64"), {INT64_MAX}), std::nullopt);
  EXPECT_EQ(tensor_bytes(codec_named("f32"), {5120, 248320}), 5120ull * 248320ull * 4ull);
}

}  // namespace
}  // namespace ts
