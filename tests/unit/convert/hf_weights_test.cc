#include "convert/hf_weights.h"

#include <cmath>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "checkpoint_builder.h"
#include "support/error_matchers.h"

namespace ts {
namespace {

using test::bf16_bytes;
using test::catch_error;
using test::f32_bytes;
using test::StoredTensor;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;

HfQuantization quantization(const std::string& settings) {
  return read_hf_quantization(HfConfig::parse(
      R"({"architectures":["X"],"quantization_config":)" + settings + "}", "config.json"));
}

class HfWeightsTest : public ::testing::Test {
 protected:
  HfWeight open(const std::map<std::string, StoredTensor>& tensors, const std::string& settings,
                bool is_matrix = true) {
    bytes_ = test::safetensors_bytes(tensors);
    file_ = Safetensors::parse(test::as_bytes(bytes_), "m.safetensors");
    return open_hf_weight(*file_, *file_->find("w.weight"), quantization(settings), is_matrix);
  }
  static std::vector<float> all(const HfWeight& weight) {
    std::vector<float> values(static_cast<size_t>(weight.rows->n_rows() * weight.rows->n_cols()));
    const auto n_cols = static_cast<size_t>(weight.rows->n_cols());
    for (int64_t r = 0; r < weight.rows->n_rows(); ++r)
      weight.rows->read_row(r, std::span(values).subspan(static_cast<size_t>(r) * n_cols, n_cols));
    return values;
  }

  std::string bytes_;
  std::shared_ptr<const Safetensors> file_;
};

const StoredTensor kFp8{"F8_E4M3", {3, 3}, "\x38\x40\x38\x30\xb8\x48\x38\x38\x38"};
const std::string kBlocks2 = R"({"quant_method":"fp8","weight_block_size":[2,2]})";

TEST_F(HfWeightsTest, Fp8BlockScalesMultiply) {
  const HfWeight w = open(
      {{"w.weight", kFp8}, {"w.weight_scale_inv", {"F32", {2, 2}, f32_bytes({2, 0.5, 0.25, 4})}}},
      kBlocks2);
  EXPECT_THAT(all(w), ElementsAre(2, 4, 0.5, 1, -2, 2, 0.25, 0.25, 4));
  EXPECT_THAT(w.sources, ElementsAre("w.weight", "w.weight_scale_inv"));
  EXPECT_EQ(w.stored_type, "F8_E4M3");
  EXPECT_TRUE(w.unpacked);
}

TEST_F(HfWeightsTest, Fp8ScalesPerRowAndPerTensor) {
  for (const auto& shape : {std::vector<int64_t>{3}, std::vector<int64_t>{3, 1}}) {
    const HfWeight w =
        open({{"w.weight", kFp8}, {"w.weight_scale", {"BF16", shape, bf16_bytes({2, 1, 0.5})}}},
             R"({"quant_method":"compressed-tensors","format":"float-quantized"})");
    EXPECT_THAT(all(w), ElementsAre(2, 4, 2, 0.5, -1, 4, 0.5, 0.5, 0.5));
  }
  const HfWeight w = open({{"w.weight", kFp8}, {"w.weight_scale", {"F32", {}, f32_bytes({2})}}},
                          R"({"quant_method":"fp8"})");
  EXPECT_THAT(all(w), ElementsAre(2, 4, 2, 1, -2, 8, 2, 2, 2));
}

TEST_F(HfWeightsTest, Fp8ScalesThatDoNotFitAreRefused) {
  auto e = catch_error([&] { open({{"w.weight", kFp8}}, kBlocks2); });
  EXPECT_EQ(e.code, ErrorCode::kFormat);
  EXPECT_THAT(e.message, AllOf(HasSubstr("w.weight_scale_inv"), HasSubstr("m.safetensors")));
  e = catch_error([&] {
    open({{"w.weight", kFp8}, {"w.weight_scale_inv", {"F32", {1, 2}, f32_bytes({2, 1})}}},
         kBlocks2);
  });
  EXPECT_EQ(e.code, ErrorCode::kFormat);
  EXPECT_THAT(e.message, AllOf(HasSubstr("[1, 2]"), HasSubstr("[2, 2]")));
  e = catch_error([&] {
    open({{"w.weight", kFp8}, {"w.weight_scale", {"F32", {2}, f32_bytes({2, 1})}}},
         R"({"quant_method":"fp8"})");
  });
  EXPECT_EQ(e.code, ErrorCode::kFormat);
  for (const float bad : {-1.0F, INFINITY, NAN}) {
    e = catch_error([&] {
      open({{"w.weight", kFp8}, {"w.weight_scale", {"F32", {}, f32_bytes({bad})}}},
           R"({"quant_method":"fp8"})");
    });
    EXPECT_EQ(e.code, ErrorCode::kFormat) << bad;
    EXPECT_THAT(e.message, HasSubstr("w.weight_scale"));
  }
}

/// Digits -1 0 1 ... of 8 rows and 3 columns, packed as two stored rows.
std::vector<float> digits() {
  std::vector<float> d;
  for (int i = 0; i < 24; ++i)
    d.push_back(static_cast<float>((i * 7 + i / 3) % 3 - 1));
  return d;
}
StoredTensor packed_digits() {
  const auto d = digits();
  std::string bytes(6, '\0');
  for (size_t row = 0; row < 8; ++row) {
    for (size_t c = 0; c < 3; ++c) {
      const auto code = static_cast<int>(d[row * 3 + c]) + 1;
      char& byte = bytes[row % 2 * 3 + c];
      byte = static_cast<char>(byte | code << (2 * (row / 2)));
    }
  }
  return {"U8", {2, 3}, bytes};
}

std::vector<float> scaled_digits(const std::vector<float>& factors) {
  auto d = digits();
  for (size_t i = 0; i < d.size(); ++i)
    d[i] *= factors[factors.size() == 1 ? 0 : i / 3];
  return d;
}

const std::string kMultiplying =
    R"({"quant_method":"bitnet","linear_class":"autobitlinear","quantization_mode":"offline"})";

TEST_F(HfWeightsTest, BitnetDigitsTimesScale) {
  const HfWeight w =
      open({{"w.weight", packed_digits()}, {"w.weight_scale", {"F32", {1}, f32_bytes({1.555F})}}},
           kMultiplying);
  EXPECT_THAT(w.shape, ElementsAre(8, 3));
  EXPECT_THAT(all(w), ElementsAreArray(scaled_digits({1.555F})));
  EXPECT_THAT(w.sources, ElementsAre("w.weight", "w.weight_scale"));
  const std::vector<float> per_row = {1, 2, 3, 4, 5, 6, 7, 8};
  const HfWeight rows =
      open({{"w.weight", packed_digits()}, {"w.weight_scale", {"F32", {8}, f32_bytes(per_row)}}},
           kMultiplying);
  EXPECT_THAT(all(rows), ElementsAreArray(scaled_digits(per_row)));
}

TEST_F(HfWeightsTest, BitnetClassThatDividesItsOutput) {
  const HfWeight w =
      open({{"w.weight", packed_digits()}, {"w.weight_scale", {"F32", {1}, f32_bytes({4})}}},
           R"({"quant_method":"bitnet"})");
  EXPECT_THAT(all(w), ElementsAreArray(scaled_digits({0.25F})));
}

TEST_F(HfWeightsTest, BitnetUnpackedDigitsWithScale) {
  const HfWeight w = open({{"w.weight", {"BF16", {8, 3}, bf16_bytes(digits())}},
                           {"w.weight_scale", {"F32", {1}, f32_bytes({1.555F})}}},
                          kMultiplying);
  EXPECT_THAT(all(w), ElementsAreArray(scaled_digits({1.555F})));
}

TEST_F(HfWeightsTest, BitnetOnlineRoundsAsTheModelDoes) {
  // mean|w| = 1; 0.4 rounds to 0, 0.6 and 2 to the digit 1.
  const HfWeight w = open({{"w.weight", {"F32", {2, 2}, f32_bytes({-1, 0.4F, 0.6F, 2})}}},
                          R"({"quant_method":"bitnet","linear_class":"autobitlinear",)"
                          R"("quantization_mode":"online"})");
  EXPECT_THAT(all(w), ElementsAre(-1, 0, 1, 1));
  EXPECT_TRUE(w.unpacked);
}

TEST_F(HfWeightsTest, BitnetDamageIsNamed) {
  auto e = catch_error([&] { open({{"w.weight", packed_digits()}}, kMultiplying); });
  EXPECT_EQ(e.code, ErrorCode::kFormat);
  EXPECT_THAT(e.message, HasSubstr("w.weight_scale"));
  StoredTensor bad = packed_digits();
  bad.data[4] = '\xff';
  e = catch_error([&] {
    all(open({{"w.weight", bad}, {"w.weight_scale", {"F32", {1}, f32_bytes({1})}}}, kMultiplying));
  });
  EXPECT_EQ(e.code, ErrorCode::kFormat);
  EXPECT_THAT(e.message, AllOf(HasSubstr("row 1"), HasSubstr("column 1")));
  e = catch_error([&] {
    open({{"w.weight", packed_digits()}, {"w.weight_scale", {"F32", {1}, f32_bytes({0})}}},
         R"({"quant_method":"bitnet"})");
  });
  EXPECT_EQ(e.code, ErrorCode::kFormat);
}

TEST_F(HfWeightsTest, OtherPackingsAreRefusedByName) {
  for (const char* method : {"gptq", "awq", "bitsandbytes", "mxfp4", "compressed-tensors"}) {
    const auto e =
        catch_error([&] { quantization(R"({"quant_method":")" + std::string(method) + "\"}"); });
    EXPECT_EQ(e.code, ErrorCode::kUnsupported);
    EXPECT_THAT(e.message, AllOf(HasSubstr(method), HasSubstr("quantization_config.quant_method")));
  }
  const auto mlx = catch_error([] {
    read_hf_quantization(HfConfig::parse(
        R"({"architectures":["X"],"quantization":{"bits":4,"group_size":64}})", "config.json"));
  });
  EXPECT_EQ(mlx.code, ErrorCode::kUnsupported);
  EXPECT_THAT(mlx.message, HasSubstr("MLX"));
  const auto block =
      catch_error([] { quantization(R"({"quant_method":"fp8","weight_block_size":[128,0]})"); });
  EXPECT_EQ(block.code, ErrorCode::kFormat);
  for (const char* dtype : {"I8", "U32", "I64"}) {
    const size_t bytes = dtype[1] == '8' ? 6 : dtype[1] == '3' ? 24 : 48;
    const auto e = catch_error([&] {
      open({{"w.weight", {dtype, {2, 3}, std::string(bytes, '\0')}}}, R"({"quant_method":"fp8"})");
    });
    EXPECT_EQ(e.code, ErrorCode::kUnsupported) << dtype;
    EXPECT_THAT(e.message, HasSubstr(dtype));
  }
}

}  // namespace
}  // namespace ts
