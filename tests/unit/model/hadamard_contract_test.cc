// Every rule about rotated files: each broken in turn in an otherwise good file.
#include "model/hadamard_contract.h"

#include <functional>
#include <random>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <tensorsharp/error.hpp>

#include "backend/cpu/cpu_backend.h"
#include "base/log.h"
#include "model/model.h"
#include "support/error_matchers.h"
#include "support/rotated_model.h"
#include "support/temp_dir.h"

namespace ts {
namespace {

using test::RotationChoice;
using test::TinyModel;
using test::TinyTensor;
using testing::HasSubstr;

const std::string kP = "prism.hadamard.";
const std::string kOut = "tensorsharp.hadamard.output.";

MetadataValue int_array(MetadataType type, std::vector<int64_t> values) {
  MetadataValue v;
  v.type = MetadataType::kArray;
  v.value = MetadataArray{type, std::move(values)};
  return v;
}

MetadataValue i64(int64_t value) {
  MetadataValue v;
  v.type = MetadataType::kInt64;
  v.value = value;
  return v;
}

TinyModel small() {
  TinyModel m;
  m.n_layers = 1;
  m.d_model = 64;
  m.d_ff = 128;
  m.n_heads = 2;
  m.n_kv_heads = 1;
  m.head_dim = 32;
  return m;
}

using Edit = std::function<void(Metadata&)>;

class Contract : public testing::Test {
 protected:
  void SetUp() override {
    set_log_sink([this](LogLevel level, std::string_view line) {
      if (level == LogLevel::kWarning) warnings_.emplace_back(line);
    });
  }
  void TearDown() override { set_log_sink({}); }

  static TinyModel rotated(TinyModel m, const RotationChoice& choice, const Edit& edit) {
    m = test::stored_rotated(std::move(m), choice);
    const Edit before = m.edit_metadata;
    m.edit_metadata = [=](Metadata& md) {
      before(md);
      edit(md);
    };
    return m;
  }
  std::shared_ptr<const GgufFile> open(const TinyModel& m) {
    const auto path = directory_.path() / ("m" + std::to_string(n_files_++) + ".gguf");
    test::write_tiny_model(m, path);
    return GgufFile::open(path);
  }
  /// Loads the whole model, so that the rules checked later count, too.
  void load(const TinyModel& m) {
    const auto file = open(m);
    CpuBackendOptions options;
    options.n_threads = 1;
    const auto backend = make_cpu_backend(options);
    load_model(file, backend.get());
  }
  void expect_ok(const TinyModel& m) { EXPECT_NO_THROW(load(m)); }
  void expect_refused(const TinyModel& m, const std::vector<std::string>& words,
                      std::optional<ErrorCode> code = std::nullopt) {
    const test::Thrown thrown = test::catch_error([&] { load(m); });
    EXPECT_TRUE(thrown.code == ErrorCode::kFormat || thrown.code == ErrorCode::kUnsupported)
        << thrown.message;
    if (code) {
      EXPECT_EQ(thrown.code, *code) << thrown.message;
    }
    for (const std::string& word : words)
      EXPECT_THAT(thrown.message, HasSubstr(word));
  }

  test::TempDir directory_;
  int n_files_ = 0;
  std::vector<std::string> warnings_;
};

RotationChoice block32() {
  RotationChoice choice;
  choice.block = 32;
  return choice;
}

std::vector<std::string> names_of(const Metadata& md) {
  return *md.get_strings(kP + "weight_names");
}
std::vector<int64_t> ints_of(const Metadata& md, const std::string& key) {
  return *md.get_ints(kP + key, -100000, 100000);
}

struct Rule {
  std::string name;
  Edit edit;
  std::vector<std::string> words;
  ErrorCode code = ErrorCode::kFormat;
};

Edit add_name(const std::string& name) {
  return [=](Metadata& md) {
    auto names = names_of(md);
    names.push_back(name);
    md.set(kP + "weight_names", MetadataValue::strings(names));
  };
}
Edit set(const std::string& key, MetadataValue value) {
  return [=](Metadata& md) { md.set(kP + key, value); };
}
Edit erase(const std::string& key) {
  return [=](Metadata& md) { md.erase(kP + key); };
}

std::vector<Rule> rules() {
  const auto string = [](const char* s) { return MetadataValue::string(s); };
  return {
      {"version absent", erase("version"), {kP + "version", "missing"}},
      {"version 0",
       set("version", MetadataValue::u32(0)),
       {kP + "version", "0"},
       ErrorCode::kUnsupported},
      {"version 3",
       set("version", MetadataValue::u32(3)),
       {kP + "version", "3"},
       ErrorCode::kUnsupported},
      {"version a string", set("version", string("1")), {kP + "version"}},
      {"version a float", set("version", MetadataValue::f32(1)), {kP + "version"}},
      {"version 2 untied", set("version", MetadataValue::u32(2)), {kP + "tied_output"}},
      {"version 1 tied", set("tied_output", MetadataValue::boolean(true)), {kP + "tied_output"}},
      {"block absent", erase("block_size"), {kP + "block_size", "missing"}},
      {"block 0", set("block_size", MetadataValue::u32(0)), {kP + "block_size", "0"}},
      {"block -32", set("block_size", MetadataValue::i32(-32)), {kP + "block_size", "-32"}},
      {"block 48", set("block_size", MetadataValue::u32(48)), {kP + "block_size", "48"}},
      {"block 2^63", set("block_size", MetadataValue::u64(uint64_t{1} << 63)), {kP + "block_size"}},
      {"block 16384",
       set("block_size", MetadataValue::u32(16384)),
       {kP + "block_size", "8192"},
       ErrorCode::kUnsupported},
      {"block too large for a width",
       set("block_size", MetadataValue::u32(128)),
       {kP + "sign_widths", "64", "128"}},
      {"transform absent", erase("transform"), {kP + "transform", "missing"}},
      {"transform unknown",
       set("transform", string("slant")),
       {kP + "transform", "slant"},
       ErrorCode::kUnsupported},
      {"axis absent", erase("axis"), {kP + "axis", "missing"}},
      {"axis unknown",
       set("axis", string("output")),
       {kP + "axis", "output"},
       ErrorCode::kUnsupported},
      {"sign mode absent", erase("sign_mode"), {kP + "sign_mode", "missing"}},
      {"sign mode unknown",
       set("sign_mode", string("random")),
       {kP + "sign_mode", "random"},
       ErrorCode::kUnsupported},
      {"identity with signs",
       set("sign_mode", string("identity")),
       {kP + "sign_widths", "identity"}},
      {"identity with sign values",
       [](Metadata& md) {
         md.set(kP + "sign_mode", MetadataValue::string("identity"));
         md.erase(kP + "sign_widths");
       },
       {kP + "sign_values", "identity"}},
      {"widths absent", erase("sign_widths"), {kP + "sign_widths", "missing"}},
      {"widths empty",
       set("sign_widths", MetadataValue::i32_array({})),
       {kP + "sign_widths", "empty"}},
      {"values absent", erase("sign_values"), {kP + "sign_values", "missing"}},
      {"width 0",
       set("sign_widths", MetadataValue::i32_array({0, 64, 128})),
       {kP + "sign_widths", "0"}},
      {"width negative",
       set("sign_widths", MetadataValue::i32_array({-64, 128, 128})),
       {kP + "sign_widths", "-64"}},
      {"width no multiple",
       set("sign_widths", MetadataValue::i32_array({48, 128})),
       {kP + "sign_widths", "48", "32"}},
      {"width twice",
       set("sign_widths", MetadataValue::i32_array({64, 64, 64})),
       {kP + "sign_widths", "64", "twice"}},
      {"width huge",
       set("sign_widths", int_array(MetadataType::kInt64, {INT64_MAX / 32 * 32})),
       {kP + "sign_widths"}},
      {"widths as floats",
       set("sign_widths", MetadataValue::f32_array({64, 128})),
       {kP + "sign_widths"}},
      {"values too few",
       [](Metadata& md) {
         auto v = ints_of(md, "sign_values");
         v.pop_back();
         md.set(kP + "sign_values", MetadataValue::i32_array(v));
       },
       {kP + "sign_values", "191"}},
      {"values too many",
       [](Metadata& md) {
         auto v = ints_of(md, "sign_values");
         v.push_back(1);
         md.set(kP + "sign_values", MetadataValue::i32_array(v));
       },
       {kP + "sign_values", "193", "192"}},
      {"value 0",
       [](Metadata& md) {
         auto v = ints_of(md, "sign_values");
         v[77] = 0;
         md.set(kP + "sign_values", MetadataValue::i32_array(v));
       },
       {kP + "sign_values", "index 77", "found 0"}},
      {"value 255",
       [](Metadata& md) {
         auto v = ints_of(md, "sign_values");
         for (auto& x : v)
           x = x == 1 ? 1 : 255;
         md.set(kP + "sign_values", int_array(MetadataType::kUint8, v));
       },
       {kP + "sign_values"}},
      {"values as floats",
       set("sign_values", MetadataValue::f32_array(std::vector<float>(192, 1.0F))),
       {kP + "sign_values"}},
      {"width without signs",
       [](Metadata& md) {
         md.set(kP + "sign_widths", MetadataValue::i32_array({64}));
         auto v = ints_of(md, "sign_values");
         v.resize(64);
         md.set(kP + "sign_values", MetadataValue::i32_array(v));
       },
       {kP + "sign_widths", "128", "blk.0.ffn_down.weight"}},
      {"names absent", erase("weight_names"), {kP + "weight_names", "missing"}},
      {"names empty",
       set("weight_names", MetadataValue::strings({})),
       {kP + "weight_names", "empty"}},
      {"names no strings",
       set("weight_names", MetadataValue::i32_array({1})),
       {kP + "weight_names"}},
      {"name twice",
       add_name("blk.0.attn_q.weight"),
       {kP + "weight_names", "blk.0.attn_q.weight", "twice"}},
      {"no such tensor",
       add_name("blk.7.attn_q.weight"),
       {kP + "weight_names", "blk.7.attn_q.weight"}},
      {"a norm",
       add_name("blk.0.attn_norm.weight"),
       {kP + "weight_names", "blk.0.attn_norm.weight"}},
      {"the embedding", add_name("token_embd.weight"), {kP + "weight_names", "token_embd.weight"}},
      {"ssm_alpha",
       add_name("blk.0.ssm_alpha.weight"),
       {kP + "weight_names", "blk.0.ssm_alpha.weight"}},
      {"ssm_conv1d", add_name("blk.0.ssm_conv1d.weight"), {kP + "weight_names", "ssm_conv1d"}},
      {"nextn", add_name("blk.0.nextn.eh_proj.weight"), {kP + "weight_names", "nextn"}},
      {"no digits", add_name("blk..attn_q.weight"), {kP + "weight_names", "blk..attn_q.weight"}},
      {"letters", add_name("blk.0x.attn_q.weight"), {kP + "weight_names", "blk.0x.attn_q.weight"}},
      {"a bias", add_name("blk.0.attn_q.bias"), {kP + "weight_names", "blk.0.attn_q.bias"}},
      {"empty name", add_name(""), {kP + "weight_names"}},
      {"inverse of another",
       set("inverse_weight_names", MetadataValue::strings({"output.weight"})),
       {kP + "inverse_weight_names", "output.weight"}},
      {"inverse twice",
       set("inverse_weight_names",
           MetadataValue::strings({"token_embd.weight", "token_embd.weight"})),
       {kP + "inverse_weight_names", "twice"}},
      {"grouped without key heads",
       set("gdn_v_grouped", MetadataValue::boolean(true)),
       {"llama.ssm.time_step_rank", "missing"}},
      {"grouped no multiple",
       [](Metadata& md) {
         md.set(kP + "gdn_v_grouped", MetadataValue::boolean(true));
         md.set("llama.ssm.time_step_rank", MetadataValue::u32(48));
         md.set("llama.ssm.group_count", MetadataValue::u32(15));
       },
       {kP + "gdn_v_grouped", "48", "15"}},
      {"grouped no key head",
       [](Metadata& md) {
         md.set(kP + "gdn_v_grouped", MetadataValue::boolean(true));
         md.set("llama.ssm.time_step_rank", MetadataValue::u32(48));
         md.set("llama.ssm.group_count", MetadataValue::u32(0));
       },
       {"llama.ssm.group_count", "0"}},
      {"grouped an integer", set("gdn_v_grouped", MetadataValue::u32(1)), {kP + "gdn_v_grouped"}},
      {"output rotation without block",
       [](Metadata& md) {
         md.set(kOut + "weight_names", MetadataValue::strings({"blk.0.attn_q.weight"}));
         md.set("tensorsharp.requires", MetadataValue::string("output_rotation"));
       },
       {kOut + "block_size", "missing"}},
      {"output rotation without names",
       [](Metadata& md) {
         md.set(kOut + "block_size", MetadataValue::u32(32));
         md.set("tensorsharp.requires", MetadataValue::string("output_rotation"));
       },
       {kOut + "weight_names", "missing"}},
      {"output rotation unannounced",
       [](Metadata& md) {
         md.set(kOut + "block_size", MetadataValue::u32(32));
         md.set(kOut + "weight_names", MetadataValue::strings({"blk.0.attn_q.weight"}));
       },
       {"tensorsharp.requires", "output_rotation"}},
      {"output rotation announced as something else",
       [](Metadata& md) {
         md.set(kOut + "block_size", MetadataValue::u32(32));
         md.set(kOut + "weight_names", MetadataValue::strings({"blk.0.attn_q.weight"}));
         md.set("tensorsharp.requires", MetadataValue::strings({"time_travel", "output_rotation"}));
       },
       {"tensorsharp.requires", "time_travel"},
       ErrorCode::kUnsupported},
      {"output rotation not among the announced",
       [](Metadata& md) {
         md.set(kOut + "block_size", MetadataValue::u32(32));
         md.set(kOut + "weight_names", MetadataValue::strings({"blk.0.attn_q.weight"}));
         md.set("tensorsharp.requires", MetadataValue::strings({}));
       },
       {"tensorsharp.requires", "output_rotation"}},
      {"output rotation announced by a number",
       [](Metadata& md) { md.set("tensorsharp.requires", MetadataValue::u32(1)); },
       {"tensorsharp.requires"}},
      {"output rotation announced and lost",
       [](Metadata& md) {
         md.set("tensorsharp.requires", MetadataValue::string("output_rotation"));
       },
       {"tensorsharp.requires", "output_rotation", kOut}},
      {"more widths than any model has",
       [](Metadata& md) {
         std::vector<int64_t> widths, signs;
         for (int64_t i = 1; i <= 65; ++i) {
           widths.push_back(32 * i);
           signs.insert(signs.end(), static_cast<size_t>(32 * i), 1);
         }
         md.set(kP + "sign_widths", int_array(MetadataType::kInt32, widths));
         md.set(kP + "sign_values", int_array(MetadataType::kInt8, signs));
       },
       {kP + "sign_widths", "65", "64"}},
      {"a width that no row can have",
       set("sign_widths", int_array(MetadataType::kInt64, {64, (int64_t{1} << 24) + 32})),
       {kP + "sign_widths", "16777248", "16777216"}},
      {"output block no multiple",
       [](Metadata& md) {
         md.set(kOut + "block_size", MetadataValue::u32(64));
         md.set(kOut + "weight_names", MetadataValue::strings({"blk.0.attn_k.weight"}));
         md.set("tensorsharp.requires", MetadataValue::string("output_rotation"));
       },
       {kOut + "weight_names", "blk.0.attn_k.weight", "32, 16"}},
  };
}

TEST_F(Contract, EachBrokenRuleIsRefusedAndNamed) {
  for (const Rule& rule : rules()) {
    SCOPED_TRACE(rule.name);
    std::vector<std::string> words = rule.words;
    words.push_back(".gguf");
    expect_refused(rotated(small(), block32(), rule.edit), words, rule.code);
  }
  EXPECT_THAT(warnings_, testing::IsEmpty());
}

TEST_F(Contract, GoodFilesLoadWithoutWarning) {
  for (const char* architecture : {"llama", "qwen2", "qwen3", "gemma3"}) {
    for (const bool tied : {false, true}) {
      for (const bool signs : {false, true}) {
        TinyModel m = small();
        m.architecture = architecture;
        m.tied = tied;
        RotationChoice choice = block32();
        choice.explicit_signs = signs;
        expect_ok(rotated(m, choice, [](Metadata&) {}));
      }
    }
  }
  EXPECT_THAT(warnings_, testing::IsEmpty());
}

TEST_F(Contract, IntegersOfAnyWidth) {
  expect_ok(rotated(small(), block32(), [](Metadata& md) {
    md.set(kP + "version", i64(1));
    md.set(kP + "block_size", i64(32));
    md.set(kP + "sign_values", int_array(MetadataType::kInt8, ints_of(md, "sign_values")));
    md.set(kP + "sign_widths", int_array(MetadataType::kInt64, ints_of(md, "sign_widths")));
  }));
  EXPECT_THAT(warnings_, testing::IsEmpty());
}

TEST_F(Contract, TiedEmbeddings) {
  TinyModel tied = small();
  tied.tied = true;
  // The rows serve twice, so version 1 cannot say how.
  expect_refused(rotated(tied, block32(),
                         [](Metadata& md) {
                           md.set(kP + "version", MetadataValue::u32(1));
                           md.erase(kP + "tied_output");
                         }),
                 {kP + "inverse_weight_names", "version 2"}, ErrorCode::kFormat);
  expect_refused(rotated(tied, block32(), erase("inverse_weight_names")),
                 {kP + "tied_output", "token_embd.weight"}, ErrorCode::kFormat);
  const auto make_tied = [](Metadata& md) {
    md.set(kP + "version", MetadataValue::u32(2));
    md.set(kP + "tied_output", MetadataValue::boolean(true));
  };
  expect_refused(rotated(small(), block32(), make_tied), {kP + "tied_output", "output.weight"},
                 ErrorCode::kFormat);
  // A tied model whose embedding is not rotated is an ordinary version 1 file.
  RotationChoice ordinary = block32();
  ordinary.embedding = false;
  expect_ok(rotated(tied, ordinary, [](Metadata&) {}));
}

TEST_F(Contract, OnlyArchitecturesThatRotateEverything) {
  for (const std::string name : {"qwen3moe", "qwen3next", "mamba"}) {
    const auto file = open(rotated(small(), block32(), [&](Metadata& md) {
      md.set("general.architecture", MetadataValue::string(name));
    }));
    const auto thrown = test::catch_error([&] { HadamardContract::read(*file); });
    EXPECT_EQ(thrown.code, ErrorCode::kUnsupported);
    EXPECT_THAT(thrown.message, HasSubstr(name));
  }
}

TEST_F(Contract, ListedMatrixThatTheArchitectureNeverRotates) {
  // A matrix of a listed kind that llama does not have: refused, whether or not it is used.
  TinyModel m = rotated(small(), block32(), add_name("blk.0.ssm_out.weight"));
  m.edit_tensors = [](std::vector<TinyTensor>& tensors) {
    tensors.push_back(
        {"blk.0.ssm_out.weight", TypeId::kF32, Shape{64, 64}, std::vector<float>(4096, 0.5F)});
  };
  expect_refused(m, {"blk.0.ssm_out.weight", "llama"}, ErrorCode::kUnsupported);
}

TEST_F(Contract, ShapesOfListedTensors) {
  for (const Shape& shape : {Shape{64}, Shape{64, 2, 2}}) {
    TinyModel m = rotated(small(), block32(), add_name("blk.0.attn_gate.weight"));
    m.edit_tensors = [=](std::vector<TinyTensor>& tensors) {
      tensors.push_back({"blk.0.attn_gate.weight", TypeId::kF32, shape,
                         std::vector<float>(static_cast<size_t>(shape.n_elems()), 0.5F)});
    };
    expect_refused(m, {kP + "weight_names", "blk.0.attn_gate.weight", "dimensions"},
                   ErrorCode::kFormat);
  }
}

TEST_F(Contract, GroupedHeadsComeFromTheHyperParameters) {
  const auto with_ssm_out = [&](int64_t width, int64_t value_heads) {
    TinyModel m = small();
    m.edit_tensors = [=](std::vector<TinyTensor>& tensors) {
      tensors.push_back({"blk.0.ssm_out.weight", TypeId::kF32, Shape{width, 64},
                         std::vector<float>(static_cast<size_t>(width * 64), 0.5F)});
    };
    return rotated(m, block32(), [=](Metadata& md) {
      md.set("general.architecture", MetadataValue::string("qwen35"));
      md.set(kP + "gdn_v_grouped", MetadataValue::boolean(true));
      md.set("qwen35.ssm.time_step_rank", MetadataValue::u32(static_cast<uint32_t>(value_heads)));
      md.set("qwen35.ssm.group_count", MetadataValue::u32(2));
    });
  };
  const auto contract = HadamardContract::read(*open(with_ssm_out(128, 4)));
  const auto ssm_out = contract->rotations_of("blk.0.ssm_out.weight").input;
  ASSERT_NE(ssm_out, nullptr);
  EXPECT_EQ(ssm_out->grouped(), (GroupedHeads{2, 2, 32}));
  // The same width elsewhere is not permuted, and shares one rotation.
  const auto down = contract->rotations_of("blk.0.ffn_down.weight").input;
  EXPECT_FALSE(down->grouped().has_value());
  EXPECT_EQ(contract->rotations_of("blk.0.attn_q.weight").input,
            contract->rotations_of("blk.0.attn_k.weight").input);
  EXPECT_EQ(contract->rotations_of("output.weight").input,
            contract->rotations_of("token_embd.weight").rows);
  EXPECT_EQ(contract->rotations_of("blk.0.attn_norm.weight").input, nullptr);
  EXPECT_THAT(contract->describe(),
              testing::AllOf(HasSubstr("block 32"), HasSubstr("64, 128"),
                             HasSubstr("9 matrices and the embedding"), HasSubstr("grouped")));
  const auto thrown =
      test::catch_error([&] { HadamardContract::read(*open(with_ssm_out(128, 6))); });
  EXPECT_THAT(thrown.message, testing::AllOf(HasSubstr("blk.0.ssm_out.weight"), HasSubstr("128"),
                                             HasSubstr("6 value heads")));
}

TEST_F(Contract, UnlistedTernaryMatricesGiveOneWarning) {
  TinyModel m = small();
  m.d_model = m.d_ff = 128;
  m.head_dim = 64;
  m.ternary = true;
  m.matrix_type = TypeId::kPQ2_0;
  expect_ok(
      rotated(m, block32(), set("weight_names", MetadataValue::strings({"blk.0.attn_q.weight"}))));
  ASSERT_EQ(warnings_.size(), 1u);
  EXPECT_THAT(warnings_[0],
              testing::AllOf(HasSubstr("blk.0.attn_k.weight"), HasSubstr("7 matrices"),
                             testing::Not(HasSubstr("blk.0.attn_q.weight"))));
}

TEST_F(Contract, UnknownKeysGiveAWarning) {
  expect_ok(rotated(small(), block32(), set("comment", MetadataValue::string("hello"))));
  ASSERT_FALSE(warnings_.empty());
  EXPECT_THAT(warnings_[0], HasSubstr(kP + "comment"));
}

TEST_F(Contract, FilesWithoutKeysHaveNone) {
  EXPECT_EQ(HadamardContract::read(*open(small())), nullptr);
}

TEST_F(Contract, OutputRotations) {
  const auto contract = HadamardContract::read(*open(rotated(small(), block32(), [](Metadata& md) {
    md.set(kOut + "block_size", MetadataValue::u32(16));
    md.set(kOut + "weight_names",
           MetadataValue::strings({"blk.0.attn_q.weight", "blk.0.ffn_up.weight"}));
    md.set("tensorsharp.requires", MetadataValue::strings({"output_rotation"}));
  })));
  const WeightRotations q = contract->rotations_of("blk.0.attn_q.weight");
  ASSERT_NE(q.output, nullptr);
  EXPECT_EQ(q.output->block(), 16);
  EXPECT_EQ(q.output->flips(), nullptr);
  EXPECT_NE(q.input, nullptr);
  EXPECT_EQ(contract->rotations_of("blk.0.ffn_up.weight").output->width(), 128);
  EXPECT_EQ(contract->rotations_of("blk.0.ffn_down.weight").output, nullptr);
}

/// Random changes of the keys: whatever they say, the file loads or is refused with a reason.
TEST_F(Contract, MutatedKeysNeverCrash) {
  std::mt19937 rng(2024);
  const std::vector<std::string> keys = {"version",       "block_size",   "transform",
                                         "axis",          "sign_mode",    "sign_widths",
                                         "sign_values",   "weight_names", "inverse_weight_names",
                                         "gdn_v_grouped", "tied_output"};
  const std::vector<int64_t> numbers = {0,  1,  -1,  2,         3,         16,        31,       32,
                                        33, 64, 128, INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN};
  const auto pick = [&](const auto& list) { return list[rng() % list.size()]; };
  const auto mutate = [&](Metadata& md) {
    const std::string key = kP + pick(keys);
    switch (rng() % 8) {
      case 0:
        md.erase(key);
        break;
      case 1:
        md.set(key, i64(pick(numbers)));
        break;
      case 2:
        md.set(key, MetadataValue::string(rng() % 2 ? "identity" : "output.weight"));
        break;
      case 3: {
        std::vector<int64_t> values(rng() % 5);
        for (auto& v : values)
          v = pick(numbers);
        md.set(key, int_array(MetadataType::kInt64, values));
        break;
      }
      case 4: {
        auto names = names_of(md);
        if (!names.empty()) names.resize(rng() % names.size());
        if (rng() % 2) names.push_back("token_embd.weight");
        md.set(key, MetadataValue::strings(names));
        break;
      }
      case 5:
        md.set(key, MetadataValue::boolean(rng() % 2 != 0));
        break;
      case 6:
        md.set(key, MetadataValue::f32(static_cast<float>(pick(numbers))));
        break;
      default:
        if (auto values = md.get_ints(kP + "sign_values", INT64_MIN, INT64_MAX); values) {
          (*values)[rng() % values->size()] = pick(numbers);
          md.set(kP + "sign_values", int_array(MetadataType::kInt64, *values));
        }
    }
  };
  int loaded = 0, refused = 0;
  for (int i = 0; i < 300; ++i) {
    const auto file = open(rotated(small(), block32(), [&](Metadata& md) {
      const auto changes = 1 + rng() % 2;
      for (uint32_t c = 0; c < changes; ++c) {
        try {
          mutate(md);
        } catch (const FormatError&) {  // the list to change is no list any more
        }
      }
    }));
    try {
      load_model(file, nullptr);
      ++loaded;
    } catch (const Error& error) {
      EXPECT_TRUE(error.code() == ErrorCode::kFormat || error.code() == ErrorCode::kUnsupported)
          << error.what();
      EXPECT_THAT(std::string(error.what()), testing::Not(testing::IsEmpty()));
      ++refused;
    }
  }
  EXPECT_GT(loaded, 5);
  EXPECT_GT(refused, 150);
}

}  // namespace
}  // namespace ts
