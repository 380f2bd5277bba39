/// What conversion does when it is killed, when the disk is full, and how much memory it needs.
/// Each case runs in a process of its own.
#include <csignal>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <tensorsharp/error.hpp>

#include "convert/convert.h"
#include "format/gguf.h"
#include "support/temp_dir.h"

namespace ts {
namespace {

constexpr int64_t kCols = 4096, kRows = 512;  // 8 MiB of f32 a tensor
constexpr int kTensors = 12;
constexpr uint64_t kTensorBytes = static_cast<uint64_t>(kCols * kRows) * 4;

#if defined(__SANITIZE_ADDRESS__)
constexpr bool kSanitized = true;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif
#else
constexpr bool kSanitized = false;
#endif

class ConvertResourcesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    GgufWriter writer(dir_ / "in.gguf", false);
    writer.metadata().set("general.architecture", MetadataValue::string("llama"));
    for (int t = 0; t < kTensors; ++t)
      writer.add_tensor("blk." + std::to_string(t) + ".w.weight", TypeId::kF32, {kCols, kRows});
    writer.begin_data();
    const std::vector<float> row(kCols, 0.5F);
    for (int64_t r = 0; r < kTensors * kRows; ++r)
      writer.write(std::as_bytes(std::span(row)));
    writer.finish();
  }

  /// Runs `work` in a child; returns its wait status and usage.
  static std::pair<int, rusage> in_child(const std::function<int()>& work) {
    const pid_t child = ::fork();
    if (child == 0) {
      int status = 99;
      try {
        status = work();
      } catch (const Error& error) {
        status = error.kind().exit_status;
      } catch (...) {
      }
      ::_exit(status);
    }
    int status = 0;
    rusage usage{};
    ::wait4(child, &status, 0, &usage);
    return {status, usage};
  }

  ConvertReport convert(const Progress& progress = {}) const {
    ConvertOptions options;
    options.type = "bf16";
    return convert_model(dir_ / "in.gguf", dir_ / "out.gguf", options, progress);
  }

  bool output_exists() const { return std::filesystem::exists(dir_ / "out.gguf"); }

  test::TempDir dir_;
};

TEST_F(ConvertResourcesTest, AKilledConversionLeavesNoOutput) {
  const auto [status, usage] = in_child([&] {
    Progress progress;
    progress.report = [](std::string_view, uint64_t done, uint64_t total) {
      if (total > 0 && done * 2 > total) ::raise(SIGKILL);
    };
    convert(progress);
    return 0;
  });
  ASSERT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(WTERMSIG(status), SIGKILL);
  EXPECT_FALSE(output_exists());
}

TEST_F(ConvertResourcesTest, AFullDiskIsAnErrorWithoutLeftovers) {
  const auto [status, usage] = in_child([&] {
    // A limit on file size stands for the full disk.
    ::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{kTensorBytes, kTensorBytes};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    convert();
    return 0;
  });
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), error_kind(ErrorCode::kResourceExhausted).exit_status);
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(dir_.path())) {
    EXPECT_EQ(entry.path().filename(), "in.gguf");
    ++files;
  }
  EXPECT_EQ(files, 1);
}

TEST_F(ConvertResourcesTest, MemoryDoesNotGrowWithTheModel) {
  if (kSanitized) GTEST_SKIP() << "the sanitizer's own memory counts";
  const auto [idle_status, idle] = in_child([] { return 0; });
  const auto [status, usage] = in_child([&] {
    convert();
    return 0;
  });
  ASSERT_TRUE(WIFEXITED(status));
  ASSERT_EQ(WEXITSTATUS(status), 0);
  EXPECT_EQ(std::filesystem::file_size(dir_ / "out.gguf") / (kTensorBytes / 2), kTensors);
  const auto grown = static_cast<uint64_t>(usage.ru_maxrss - idle.ru_maxrss) * 1024;
  // One tensor, a piece of it in three forms, and what the system counts late; the model is several
  // times that.
  EXPECT_LT(grown, kTensorBytes * 3);
}

}  // namespace
}  // namespace ts
