// Whole models through the quantizer: what is written loads, computes what it should, and has the
// size that was announced.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <tensorsharp/engine.hpp>

#include "base/log.h"
#include "base/sha256.h"
#include "convert/convert.h"
#include "format/file_kind.h"
#include "format/gguf.h"
#include "model/hadamard_contract.h"
#include "quantize/budget.h"
#include "quantize/quantize.h"
#include "quantize/report.h"
#include "support/error_matchers.h"
#include "support/gguf_builder.h"
#include "support/temp_dir.h"
#include "support/tiny_model.h"

namespace ts {
namespace {

using test::catch_error;
using test::Thrown;
using test::TinyModel;

const std::filesystem::path kTestdata = TS_TESTDATA_DIR;

std::vector<float> logits(const std::filesystem::path& path, bool exact = true,
                          bool planes = true) {
  LoadOptions o;
  o.exact = exact;
  o.kv = KvCacheType::kF32;
  o.n_threads = 1;
  o.residual_planes = planes;
  const auto engine = Engine::load(path.string(), o);
  std::vector<int32_t> ids;
  for (int32_t i = 0; i < 24; ++i)
    ids.push_back((i * 37 + 5) % static_cast<int32_t>(engine->info().n_vocab));
  std::vector<float> out(ids.size() * static_cast<size_t>(engine->info().n_vocab));
  engine->new_session()->eval(ids, out, true);
  return out;
}

double worst_difference(const std::vector<float>& a, const std::vector<float>& b) {
  EXPECT_EQ(a.size(), b.size());
  double worst = 0;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i)
    worst = std::max(worst, static_cast<double>(std::fabs(a[i] - b[i])));
  return worst;
}

double rms_difference(const std::vector<float>& a, const std::vector<float>& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i)
    sum += static_cast<double>(a[i] - b[i]) * static_cast<double>(a[i] - b[i]);
  return std::sqrt(sum / static_cast<double>(a.size()));
}

class QuantizeModel : public testing::Test {
 protected:
  std::filesystem::path write(const TinyModel& model) {
    const auto path = directory_ / ("source" + std::to_string(n_files_++) + ".gguf");
    test::write_tiny_model(model, path);
    return path;
  }
  std::filesystem::path write_text(const std::string& name, const std::string& text) {
    const auto path = directory_ / name;
    test::write_file(path, text);
    return path;
  }
  QuantizeOptions options(const std::string& scheme) {
    QuantizeOptions o;
    o.scheme = scheme;
    o.seed = 11;
    o.n_threads = 1;
    return o;
  }
  QuantizeReport quantize(const std::filesystem::path& in, const std::string& out,
                          const QuantizeOptions& o) {
    return quantize_model(in, directory_ / out, o, Progress{});
  }
  Thrown refused(const std::filesystem::path& in, const QuantizeOptions& o) {
    const Thrown thrown = catch_error([&] { quantize(in, "refused.gguf", o); });
    EXPECT_FALSE(std::filesystem::exists(directory_ / "refused.gguf"));
    return thrown;
  }
  test::TempDir directory_;
  int n_files_ = 0;
};

TEST_F(QuantizeModel, ARotatedFileOfEveryArchitectureComputesTheSame) {
  const auto policy =
      write_text("policy.json", R"({"rules": [{"match": "*", "scheme": "f32", "rotate": true}]})");
  for (const std::string architecture : {"llama", "qwen2", "qwen3", "gemma3", "qwen35"}) {
    for (const bool tied : {false, true}) {
      TinyModel model;
      model.architecture = architecture;
      model.tied = tied;
      const auto source = write(model);
      QuantizeOptions o = options("ptq1_0");
      o.policy = policy.string();
      o.overwrite = true;
      const QuantizeReport report = quantize(source, "rotated.gguf", o);
      SCOPED_TRACE(architecture + (tied ? ", tied" : ""));
      EXPECT_GE(report.n_rotated, 13U);
      const auto contract = HadamardContract::read(*GgufFile::open(directory_ / "rotated.gguf"));
      ASSERT_NE(contract, nullptr);
      EXPECT_NE(contract->rotations_of("token_embd.weight").rows, nullptr);
      EXPECT_LT(worst_difference(logits(source), logits(directory_ / "rotated.gguf")), 1e-3);

      // And back: the rotation of a source is undone before anything else.
      QuantizeOptions back = options("ptq1_0");
      back.policy =
          write_text("back.json", R"({"rules": [{"match": "*", "scheme": "f32"}]})").string();
      back.rotate = "none";
      back.overwrite = true;
      EXPECT_EQ(quantize(directory_ / "rotated.gguf", "back.gguf", back).n_rotated, 0U);
      EXPECT_EQ(HadamardContract::read(*GgufFile::open(directory_ / "back.gguf")), nullptr);
      EXPECT_LT(worst_difference(logits(source), logits(directory_ / "back.gguf")), 1e-3);
    }
  }
}

TEST_F(QuantizeModel, AnAbsorbedRotationNeedsNothingAtRunTime) {
  const auto policy =
      write_text("f32.json", R"({"rules": [{"match": "*", "scheme": "f32"}]})").string();
  for (const std::string architecture : {"llama", "qwen2", "qwen3", "gemma3"}) {
    for (const bool tied : {false, true}) {
      SCOPED_TRACE(architecture + (tied ? ", tied" : ""));
      TinyModel model;
      model.architecture = architecture;
      model.tied = tied;
      model.biases = architecture == "llama";
      const auto source = write(model);
      QuantizeOptions o = options("ptq1_0");
      o.policy = policy;
      o.rotate = "absorbed";
      o.overwrite = true;
      const QuantizeReport report = quantize(source, "absorbed.gguf", o);
      const auto file = GgufFile::open(directory_ / "absorbed.gguf");
      EXPECT_EQ(HadamardContract::read(*file), nullptr);
      EXPECT_LT(worst_difference(logits(source), logits(directory_ / "absorbed.gguf")), 1e-3);
      // The weights are other ones, except where nothing can absorb the rotation.
      const bool stream = architecture != "gemma3";
      EXPECT_EQ(report.absorbed_block, stream ? 256 : 0);
      EXPECT_EQ(report.absorbed_value_block, 64);
      EXPECT_EQ(file->find("output.weight") != nullptr, stream || !tied);
      const auto before = GgufFile::open(source);
      const auto same = [&](const std::string& name) {
        const auto x = before->find(name)->data, y = file->find(name)->data;
        return std::equal(x.begin(), x.end(), y.begin(), y.end());
      };
      EXPECT_EQ(same("blk.0.attn_q.weight"), !stream);
      EXPECT_EQ(same("blk.0.ffn_down.weight"), !stream);
      EXPECT_FALSE(same("blk.0.attn_v.weight"));
      EXPECT_FALSE(same("blk.1.attn_output.weight"));
      for (const QuantizedTensor& t : report.tensors) {
        const bool reads_values = t.name.find("attn_output.weight") != std::string::npos;
        const bool reads_stream =
            t.linear && !reads_values && t.name.find("ffn_down") == std::string::npos;
        EXPECT_FALSE(t.rotated) << t.name;
        if (!t.linear) continue;
        EXPECT_EQ(t.absorbed, reads_values || (stream && reads_stream)) << t.name;
      }
    }
  }
  TinyModel recurrent;
  recurrent.architecture = "qwen35";
  QuantizeOptions o = options("ptq1_0");
  o.rotate = "absorbed";
  const Thrown thrown = refused(write(recurrent), o);
  EXPECT_EQ(thrown.code, ErrorCode::kUnsupported);
  EXPECT_NE(thrown.message.find("qwen35"), std::string::npos) << thrown.message;
}

TEST_F(QuantizeModel, WhatCannotBeTunedIsRefusedBeforeAnythingIsComputed) {
  TinyModel recurrent;
  recurrent.architecture = "qwen35";
  QuantizeOptions o = options("ptq1_0");
  o.tune = true;
  o.calibration = {{write_text("text.txt", std::string(9000, 'a')), 1}};
  const Thrown thrown = refused(write(recurrent), o);
  EXPECT_EQ(thrown.code, ErrorCode::kUnsupported);
  EXPECT_NE(thrown.message.find("recurrent"), std::string::npos) << thrown.message;
  o.calibration = {{write_text("short.txt", std::string(100, 'a')), 1}};
  EXPECT_EQ(refused(write(TinyModel{}), o).code, ErrorCode::kInvalidArgument);
}

TEST_F(QuantizeModel, SearchedSignsFitAtLeastAsWell) {
  const auto source = write(TinyModel{});
  const auto error = [&](const QuantizeReport& report) {
    double sum = 0;
    for (const QuantizedTensor& t : report.tensors) {
      if (t.fitted) sum += std::pow(10.0, -t.sqnr_db / 10);
    }
    return sum;
  };
  QuantizeOptions o = options("ptq1_0");
  const QuantizeReport first = quantize(source, "first.gguf", o);
  o.search_rotation = true;
  const QuantizeReport best = quantize(source, "best.gguf", o);
  // A sample of the rows decides, so all rows may disagree a little.
  EXPECT_LT(error(best), 1.002 * error(first));
  EXPECT_EQ(std::count_if(best.notes.begin(), best.notes.end(),
                          [](const std::string& n) { return n.find("best of 6") != n.npos; }),
            2);
  for (const QuantizedTensor& t : best.tensors) {
    if (!t.fitted) continue;
    EXPECT_NEAR(t.profile.plain_sqnr_after_db, t.sqnr_db, 0.3) << t.name;
    EXPECT_GT(t.rotation_additions, t.n_cols) << t.name;
  }
}

TEST_F(QuantizeModel, BothPacksGiveTheSameLogits) {
  const auto source = write(TinyModel{});
  quantize(source, "a.gguf", options("ptq1_0"));
  quantize(source, "b.gguf", options("pq2_0"));
  for (const bool exact : {true, false})
    EXPECT_EQ(worst_difference(logits(directory_ / "a.gguf", exact),
                               logits(directory_ / "b.gguf", exact)),
              0);
}

TEST_F(QuantizeModel, TheAnnouncedSizeIsTheSizeOfTheFiles) {
  const auto source = write(TinyModel{});
  QuantizeOptions o = options("pq2_0");
  o.n_planes = 2;
  o.dry_run = true;
  const QuantizeReport plan = quantize_model(source, "", o, Progress{});
  o.dry_run = false;
  const QuantizeReport report = quantize(source, "out.gguf", o);
  uint64_t sum = 0;
  for (const BitTerm& term : plan.account.terms)
    sum += term.bytes;
  EXPECT_EQ(sum, plan.account.file_bytes);
  EXPECT_EQ(std::filesystem::file_size(directory_ / "out.gguf") +
                std::filesystem::file_size(directory_ / "out.residuals.gguf"),
            plan.account.file_bytes);
  EXPECT_EQ(report.output_bytes, plan.account.file_bytes);
  EXPECT_DOUBLE_EQ(report.linear_bits_per_weight, 2 * 2.125);
}

TEST_F(QuantizeModel, FurtherPlanesBringTheModelNearerToItsSource) {
  const auto source = write(TinyModel{});
  QuantizeOptions o = options("ptq1_0");
  o.n_planes = 3;
  quantize(source, "out.gguf", o);
  const auto out = directory_ / "out.gguf";
  const auto want = logits(source);
  const double with = rms_difference(want, logits(out));
  const double without = rms_difference(want, logits(out, true, false));
  EXPECT_LT(with, 0.5 * without);
  EXPECT_GT(without, 0);

  // Alone it runs, too, but not without a word; what all planes were added up for is complete.
  std::filesystem::rename(residual_path(out), directory_ / "elsewhere");
  {
    WarningCollector warnings;
    logits(out, true, false);
    EXPECT_TRUE(warnings.take().empty());
    logits(out);
    const std::vector<std::string> lines = warnings.take();
    ASSERT_EQ(lines.size(), 1U);
    EXPECT_NE(lines[0].find("first of 3 planes"), std::string::npos) << lines[0];
    EXPECT_NE(lines[0].find("out.residuals.gguf"), std::string::npos) << lines[0];
  }
  std::filesystem::rename(directory_ / "elsewhere", residual_path(out));
  QuantizeOptions all = options("f16");
  all.unrotate = true;
  quantize(out, "whole.gguf", all);
  EXPECT_FALSE(
      GgufFile::open(directory_ / "whole.gguf")->metadata().get_int(kPlanesKey, 1, 9).has_value());

  // Another model beside the same planes is refused; without the planes it runs.
  QuantizeOptions other = options("pq2_0");
  quantize(source, "other.gguf", other);
  std::filesystem::rename(residual_path(out), residual_path(directory_ / "other.gguf"));
  const Thrown thrown = catch_error([&] { logits(directory_ / "other.gguf"); });
  EXPECT_EQ(thrown.code, ErrorCode::kFormat);
  EXPECT_NE(thrown.message.find("SHA-256"), std::string::npos) << thrown.message;
  EXPECT_FALSE(logits(directory_ / "other.gguf", true, false).empty());

  // A model without planes does not take the name of one that has them by accident.
  std::filesystem::remove(directory_ / "other.gguf");
  EXPECT_EQ(catch_error([&] { quantize(source, "other.gguf", other); }).code,
            ErrorCode::kInvalidArgument);
  other.overwrite = true;
  quantize(source, "other.gguf", other);
  EXPECT_FALSE(std::filesystem::exists(residual_path(directory_ / "other.gguf")));
}

TEST_F(QuantizeModel, WidthsThatDoNotFitFallBackAndSaySo) {
  TinyModel model;
  model.d_model = 192;
  model.d_ff = 320;
  const auto source = write(model);
  const QuantizeReport report = quantize(source, "out.gguf", options("ptq1_0"));
  EXPECT_EQ(report.rotation_block, 64);
  for (const QuantizedTensor& t : report.tensors) {
    if (!t.linear) continue;
    EXPECT_EQ(t.type, t.n_cols % 128 == 0 ? "ptq1_0" : "q2_0") << t.name;
    EXPECT_EQ(t.remark.empty(), t.n_cols % 128 == 0) << t.name;
  }
  EXPECT_TRUE(std::any_of(report.notes.begin(), report.notes.end(), [](const std::string& note) {
    return note.find("320") != std::string::npos && note.find("q2_0") != std::string::npos;
  }));
  QuantizeOptions strict = options("ptq1_0");
  strict.no_fallback = true;
  const Thrown thrown = refused(source, strict);
  EXPECT_EQ(thrown.code, ErrorCode::kUnsupported);
  EXPECT_NE(thrown.message.find("192"), std::string::npos) << thrown.message;
}

TEST_F(QuantizeModel, WeightsThatAreTernaryAlreadyStayExact) {
  TinyModel model;
  model.ternary = true;
  const auto source = write(model);
  const QuantizeReport report = quantize(source, "out.gguf", options("ptq1_0"));
  EXPECT_EQ(report.n_rotated, 0U);
  for (const QuantizedTensor& t : report.tensors) {
    if (!t.linear) continue;
    EXPECT_EQ(t.remark, "ternary already") << t.name;
  }
  const auto policy = write_text(
      "p.json",
      R"({"rules": [{"match": "blk.*", "scheme": "main"}, {"match": "*", "scheme": "f32"}]})");
  QuantizeOptions o = options("pq2_0");
  o.policy = policy.string();
  quantize(source, "exact.gguf", o);
  EXPECT_EQ(worst_difference(logits(source), logits(directory_ / "exact.gguf")), 0);
}

TEST_F(QuantizeModel, RequestsThatCannotBeMetAreRefusedBeforeAnythingIsWritten) {
  const auto source = write(TinyModel{});
  const auto with = [&](auto change) {
    QuantizeOptions o = options("ptq1_0");
    change(o);
    return refused(source, o);
  };
  EXPECT_EQ(with([](auto& o) { o.method = TernaryMethod::kGptq; }).code,
            ErrorCode::kInvalidArgument);
  EXPECT_EQ(with([](auto& o) { o.rotate = "48"; }).code, ErrorCode::kInvalidArgument);
  const Thrown block = with([](auto& o) { o.rotate = "256"; });
  EXPECT_EQ(block.code, ErrorCode::kHadamardDimension);
  EXPECT_NE(block.message.find("384"), std::string::npos) << block.message;
  EXPECT_EQ(with([](auto& o) { o.policy = "no-such"; }).code, ErrorCode::kInvalidArgument);
  const auto policy = [&](const std::string& text) {
    return with([&](auto& o) { o.policy = write_text("bad.json", text).string(); });
  };
  EXPECT_EQ(policy(R"({"rules": [{"match": "blk.*", "scheme": "main"}]})").code,
            ErrorCode::kInvalidArgument);
  EXPECT_NE(policy(R"({"rules": [{"match": "*", "scheme": "q9"}]})").message.find("rule 1"),
            std::string::npos);
  EXPECT_EQ(policy(R"({"rules": [{"match": "*", "scheme": "main", "plane": 2}]})").code,
            ErrorCode::kFormat);
  EXPECT_EQ(policy(R"({"rules": [{"match": "*", "scheme": "main", "planes": 9}]})").code,
            ErrorCode::kFormat);

  TinyModel damaged;
  damaged.edit_tensors = [](std::vector<test::TinyTensor>& tensors) {
    for (auto& t : tensors) {
      if (t.name == "blk.1.ffn_up.weight") t.values[1234] = NAN;
    }
  };
  const Thrown nan = refused(write(damaged), options("ptq1_0"));
  EXPECT_EQ(nan.code, ErrorCode::kFormat);
  EXPECT_NE(nan.message.find("blk.1.ffn_up.weight"), std::string::npos) << nan.message;
}

TEST_F(QuantizeModel, CheckpointsAreQuantizedLikeTheirConvertedFiles) {
  const auto checkpoint = kTestdata / "hf" / "llama";
  ConvertOptions convert;
  convert_model(checkpoint, directory_ / "converted.gguf", convert, Progress{});
  QuantizeOptions o = options("ptq1_0");
  quantize(checkpoint, "a.gguf", o);
  quantize(directory_ / "converted.gguf", "b.gguf", o);
  EXPECT_EQ(worst_difference(logits(directory_ / "a.gguf"), logits(directory_ / "b.gguf")), 0);
}

class CalibratedModel : public QuantizeModel {
 protected:
  QuantizeOptions calibrated() {
    QuantizeOptions o = options("q2_0");
    o.calibration = {{kTestdata / "stories260k" / "tinystories_40.txt", 1}};
    o.calibration_tokens = 4096;
    o.accept_quality = true;
    return o;
  }
  std::filesystem::path source_ = kTestdata / "stories260k.gguf";
};

TEST_F(CalibratedModel, FittingToTextsBeatsFittingToWeights) {
  QuantizeOptions o = calibrated();
  const QuantizeReport gptq = quantize(source_, "gptq.gguf", o);
  o.method = TernaryMethod::kMse;
  const QuantizeReport mse = quantize(source_, "mse.gguf", o);
  o.method = TernaryMethod::kAbsmean;
  const QuantizeReport absmean = quantize(source_, "absmean.gguf", o);
  ASSERT_EQ(gptq.quality.size(), 2U);
  EXPECT_GT(gptq.quality[0].n_tokens, 300);
  EXPECT_LT(gptq.quality[0].ratio(), 0.8 * mse.quality[0].ratio());
  EXPECT_LT(gptq.quality[0].kl_mean, 0.9 * mse.quality[0].kl_mean);
  EXPECT_LT(mse.quality[0].kl_mean, absmean.quality[0].kl_mean);
  EXPECT_EQ(gptq.layer_cosines.size(), 5U);
  ASSERT_EQ(gptq.attention_correlations.size(), 5U);
  for (const double c : gptq.attention_correlations) {
    EXPECT_GT(c, 0.5);
    EXPECT_LT(c, 1.0);
  }
  for (size_t i = 0; i < 5; ++i)
    EXPECT_GT(gptq.layer_cosines[i], mse.layer_cosines[i]) << i;
  // The error that is weighed is that of the outputs, at the cost of that of the weights.
  for (size_t i = 0; i < gptq.tensors.size(); ++i) {
    if (!gptq.tensors[i].fitted) continue;
    EXPECT_GT(gptq.tensors[i].output_error, 0);
    EXPECT_LT(gptq.tensors[i].output_error, 1);
    EXPECT_LT(gptq.tensors[i].sqnr_db, mse.tensors[i].sqnr_db + 1);
  }
  // The reports say what was measured.
  const auto json = quantize_report_json(gptq);
  EXPECT_NEAR(json.at("perplexity_ratio").get<double>(), gptq.quality[0].ratio(), 1e-12);
  EXPECT_NE(quantize_report_html(gptq).find("<svg"), std::string::npos);
}

TEST(SpendBudget, StepsThatRemoveMostHarmPerByteComeFirst) {
  std::vector<PlaneChoice> choices = {{{1.0, 0.5, 0.4}, 10, 1},
                                      {{4.0, 0.5, 0.1}, 100, 1},
                                      {{1.0, 0.9, 0.1}, 10, 1},  // the second step pays more
                                      {{0.0, 0.0, 0.0}, 1, 1}};
  spend_budget(choices, 121);
  EXPECT_EQ(choices[0].n_planes, 1);
  spend_budget(choices, 131);
  EXPECT_EQ(choices[0].n_planes, 2);  // 0.05 per byte
  spend_budget(choices, 151);
  EXPECT_EQ(choices[0].n_planes, 2);
  EXPECT_EQ(choices[2].n_planes, 3);  // 0.045 per byte, both at once
  spend_budget(choices, 251);
  EXPECT_EQ(choices[0].n_planes, 2);
  EXPECT_EQ(choices[1].n_planes, 2);  // 0.035 per byte
  EXPECT_EQ(choices[3].n_planes, 1);
  spend_budget(choices, 1000);
  EXPECT_EQ(choices[0].n_planes, 3);
  EXPECT_EQ(choices[1].n_planes, 3);
  EXPECT_EQ(choices[3].n_planes, 1);
}

TEST_F(CalibratedModel, ABudgetIsSpentAndKept) {
  QuantizeOptions o = calibrated();
  o.calibration_tokens = 1024;
  const double least = quantize(source_, "one.gguf", o).bits_per_weight;
  o.target_bits = least + 0.2;
  const QuantizeReport report = quantize(source_, "out.gguf", o);
  EXPECT_LE(report.bits_per_weight, least + 0.2);
  EXPECT_GT(report.bits_per_weight, least + 0.15);
  int counts[4] = {};
  for (const QuantizedTensor& t : report.tensors) {
    if (t.fitted) ++counts[t.n_planes];
  }
  EXPECT_GT(counts[1], 0);
  EXPECT_GT(counts[2] + counts[3], 0);
  o.target_bits = least - 0.01;
  const Thrown thrown = refused(source_, o);
  EXPECT_EQ(thrown.code, ErrorCode::kInvalidArgument);
  EXPECT_NE(thrown.message.find("the least for this model"), std::string::npos) << thrown.message;
}

TEST_F(CalibratedModel, AResumedRunGivesTheSameBytes) {
  QuantizeOptions o = calibrated();
  o.calibration_tokens = 1024;
  o.resume = true;
  quantize(source_, "whole.gguf", o);
  EXPECT_FALSE(std::filesystem::exists(directory_ / "whole.gguf.partial"));
  CancelToken cancel;
  Progress progress;
  progress.cancel = &cancel;
  progress.report = [&](std::string_view stage, uint64_t, uint64_t) {
    if (stage == "blk.3.ffn_up.weight") cancel.cancel();
  };
  EXPECT_EQ(
      catch_error([&] { quantize_model(source_, directory_ / "part.gguf", o, progress); }).code,
      ErrorCode::kCancelled);
  EXPECT_FALSE(std::filesystem::exists(directory_ / "part.gguf"));
  EXPECT_TRUE(std::filesystem::exists(directory_ / "part.gguf.partial" / "layer-2.gguf"));
  EXPECT_FALSE(std::filesystem::exists(directory_ / "part.gguf.partial" / "layer-3.gguf"));
  quantize(source_, "part.gguf", o);
  EXPECT_EQ(sha256_file(directory_ / "part.gguf"), sha256_file(directory_ / "whole.gguf"));
}

TEST_F(CalibratedModel, AUselessModelIsNotKept) {
  QuantizeOptions o = calibrated();
  // All but one weight in fifty become zero.
  o.method = TernaryMethod::kTopk;
  o.threshold = 0.02;
  o.accept_quality = false;
  const QuantizeReport report = quantize(source_, "out.gguf", o);
  EXPECT_TRUE(report.useless);
  EXPECT_GT(report.quality[0].ratio(), kUselessRatio);
  EXPECT_TRUE(std::filesystem::is_empty(directory_.path()));
}

TEST_F(CalibratedModel, BadTextsAreNamed) {
  const auto with = [&](const std::string& name, const std::string& text) {
    QuantizeOptions o = calibrated();
    o.calibration = {{write_text(name, text), 1}};
    return refused(source_, o);
  };
  EXPECT_NE(with("a.jsonl", "{\"text\": \"x\"}\n{\"txt\": 1}\n").message.find("line 2"),
            std::string::npos);
  EXPECT_NE(with("b.jsonl", "{\"text\": \n").message.find("line 1"), std::string::npos);
  EXPECT_NE(with("a.u32", std::string("\xff\xff\xff\xff", 4)).message.find("vocabulary"),
            std::string::npos);
  EXPECT_EQ(with("b.u32", "abc").code, ErrorCode::kFormat);
  EXPECT_EQ(with("c.txt", "\xff\xfe binary").code, ErrorCode::kFormat);
  EXPECT_EQ(with("d.txt", "short").code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(parse_calibration_file("a.txt:6").weight, 6);
  EXPECT_EQ(parse_calibration_file("C:/a.txt").path, "C:/a.txt");
  EXPECT_EQ(catch_error([] { parse_calibration_file("a.txt:0"); }).code,
            ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace ts
