// Choices of kernels: measured once, kept in a file that may be anything by the next start, and
// without effect on results.
#include "backend/cpu/kernel_choices.h"

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "backend_fixture.h"
#include "base/log.h"
#include "kernels/kernels.h"

namespace ts {
namespace {
using namespace testing_backend;

class KernelChoicesFile : public testing::Test {
 protected:
  void SetUp() override {
    set_log_sink([this](LogLevel, std::string_view line) { log_ += std::string(line) + "\n"; });
  }
  void TearDown() override {
    set_log_sink({});
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }
  nlohmann::json json() const { return nlohmann::json::parse(std::ifstream(path_)); }
  void write(const std::string& text) const {
    std::filesystem::create_directories(folder_);
    std::ofstream(path_) << text;
  }

  const std::filesystem::path folder_ =
      std::filesystem::temp_directory_path() / ("ts_choices_" + std::to_string(getpid()));
  const std::filesystem::path path_ = folder_ / "deeper" / ".." / "kernels.json";
  const KernelChoiceKey key_ = {"avx2", 2, true, "pq2_0", 4096, 1024};
  const KernelChoice choice_ = {false, 64, 0.002, 0.001};
  std::string log_;
};

TEST_F(KernelChoicesFile, ComesBackAndKeepsWhatOthersAdded) {
  KernelChoices first(path_), second(path_);
  first.add(key_, choice_);
  KernelChoiceKey other = key_;
  other.n_threads = 4;
  second.add(other, {true, 16, 0, 0});
  const KernelChoices again(path_);
  ASSERT_EQ(again.entries().size(), 2U);
  const auto found = again.find(key_);
  ASSERT_TRUE(found);
  EXPECT_FALSE(found->repack);
  EXPECT_EQ(found->rows_per_piece, 64U);
  EXPECT_EQ(found->mapped_seconds, 0.001);
  ASSERT_TRUE(again.find(other));
  EXPECT_TRUE(again.find(other)->repack);
  other.huge_pages = false;
  EXPECT_FALSE(again.find(other));
  EXPECT_EQ(log_, "");
}

TEST_F(KernelChoicesFile, ForeignOnesAreMeasuredAgain) {
  KernelChoices(path_).add(key_, choice_);
  for (const char* field : {"program", "cpu"}) {
    nlohmann::json root = json();
    root[field] = "another";
    write(root.dump());
    log_.clear();
    EXPECT_TRUE(KernelChoices(path_).entries().empty()) << field;
    EXPECT_THAT(log_, testing::HasSubstr("kernels.json")) << field;
    KernelChoices(path_).add(key_, choice_);
    EXPECT_EQ(KernelChoices(path_).entries().size(), 1U) << field;
  }
}

TEST_F(KernelChoicesFile, DamagedOnesAreIgnoredAndReplaced) {
  KernelChoices(path_).add(key_, choice_);
  const nlohmann::json good = json();
  std::vector<std::string> bad = {"", "{", "[]", "{\"format\": 2}", "\xFF", std::string(1000, '[')};
  const auto with = [&](const char* field, const nlohmann::json& value) {
    nlohmann::json root = good;
    root["choices"][0][field] = value;
    bad.push_back(root.dump());
  };
  with("rows_per_piece", 0);
  with("rows_per_piece", -16);
  with("rows_per_piece", 48);
  with("rows_per_piece", 1e300);
  with("rows_per_piece", uint64_t{1} << 63);
  with("repack", "yes");
  with("isa", nullptr);
  with("mapped_seconds", "fast");
  nlohmann::json missing = good;
  missing["choices"][0].erase("cols");
  bad.push_back(missing.dump());
  missing["choices"] = 3;
  bad.push_back(missing.dump());
  for (const std::string& text : bad) {
    write(text);
    log_.clear();
    EXPECT_TRUE(KernelChoices(path_).entries().empty()) << text;
    EXPECT_THAT(log_, testing::HasSubstr("ignored")) << text;
    KernelChoices(path_).add(key_, choice_);
    EXPECT_TRUE(KernelChoices(path_).find(key_)) << text;
  }
}

TEST_F(KernelChoicesFile, OneThatCannotBeWrittenIsALogLine) {
  KernelChoices choices("/proc/self/nowhere/kernels.json");
  choices.add(key_, choice_);
  EXPECT_TRUE(choices.find(key_));
  EXPECT_THAT(log_, testing::HasSubstr("not kept"));
}

TEST_F(KernelChoicesFile, BackendsMeasureOnceAndComputeTheSame) {
  if (!select_kernels("").table.packed[kIntPQ2_0].pack) GTEST_SKIP() << "no vector kernels here";
  constexpr int64_t kRows = 4099, kCols = 1024;
  const std::vector<float> x = random_floats(kCols, 3);
  const Codec* codec = find_codec(TypeId::kPQ2_0);
  ASSERT_NE(codec, nullptr);
  const auto bytes =
      std::make_shared<const std::vector<std::byte>>(random_blocks(*codec, kRows, kCols, 7));
  TensorView view;
  view.name = "w";
  view.type = codec->id;
  view.shape = {kCols, kRows};
  view.data = *bytes;
  std::string kernel;
  const auto product = [&](const std::filesystem::path& file) {
    CpuBackendOptions options;
    options.n_threads = 2;
    options.kernel_choices = file.string();
    const auto backend = make_cpu_backend(options);
    const auto weight = backend->upload(view, bytes);
    kernel = weight->kernel();
    Matrix xm(*backend, 1, kCols, x), y(*backend, 1, kRows);
    Activation act(xm.mat);
    const LinearJob job = {weight.get(), y.mat, nullptr};
    backend->linear({&job, 1}, act);
    return y.values();
  };
  const std::vector<float> expected = product({});
  EXPECT_THAT(kernel, testing::HasSubstr("repacked"));
  // A machine that is busy elsewhere may not find the time at once.
  for (int i = 0; i < 20 && !std::filesystem::exists(path_); ++i)
    EXPECT_EQ(product(path_), expected);
  ASSERT_TRUE(std::filesystem::exists(path_));
  nlohmann::json root = json();
  ASSERT_EQ(root["choices"].size(), 1U);
  EXPECT_EQ(root["choices"][0]["rows"], kRows);
  EXPECT_EQ(root["choices"][0]["codec"], codec->name);
  EXPECT_GT(root["choices"][0]["mapped_seconds"], 0);
  EXPECT_GT(root["choices"][0]["repacked_seconds"], 0);
  // What the file says is done, whatever would be measured.
  for (const bool repack : {true, false}) {
    for (const int rows : {16, 64, 256, 65536}) {
      root["choices"][0]["repack"] = repack;
      root["choices"][0]["rows_per_piece"] = rows;
      write(root.dump());
      EXPECT_EQ(product(path_), expected) << repack << " " << rows;
      EXPECT_EQ(kernel.find("repacked") != std::string::npos, repack);
      EXPECT_EQ(json(), root) << "not measured again";
    }
  }
}

}  // namespace
}  // namespace ts
