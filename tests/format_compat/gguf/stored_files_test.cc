// The damaged files kept in testdata/damaged, as bytes that no builder of ours shapes anew.

#include <filesystem>
#include <map>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "format/gguf.h"
#include "format/safetensors.h"
#include "support/error_matchers.h"

namespace ts {
namespace {

namespace fs = std::filesystem;

TEST(StoredDamagedFilesTest, EachIsRefusedWithItsReason) {
  const std::map<std::string, std::string> expected = {
      {"alignment_zero.gguf", "general.alignment"},
      {"big_endian.gguf", "big-endian"},
      {"cut_in_tensor_data.gguf", "'blk.0.ffn_down.weight'"},
      {"git_lfs_pointer.gguf", "git-lfs pointer"},
      {"offset_wraps_around.gguf", "18446744073709551584"},
      {"web_page.gguf", "web page"},
      {"duplicate_key.safetensors", "listed twice"},
      {"overlapping.safetensors", "overlap"},
      {"hole.safetensors", "belong to no tensor"},
  };
  size_t seen = 0;
  for (const auto& entry : fs::directory_iterator(fs::path(TS_TESTDATA_DIR) / "damaged")) {
    const std::string name = entry.path().filename().string();
    SCOPED_TRACE(name);
    const bool is_gguf = entry.path().extension() == ".gguf";
    if (!is_gguf && entry.path().extension() != ".safetensors") continue;
    ASSERT_TRUE(expected.contains(name)) << "say what the file's message must hold";
    const auto thrown = test::catch_error([&] {
      if (is_gguf) {
        GgufFile::open(entry.path());
      } else {
        Safetensors::open(entry.path());
      }
    });
    EXPECT_THAT(thrown.message, ::testing::HasSubstr(expected.at(name)));
    EXPECT_THAT(thrown.message, ::testing::HasSubstr(name));
    ++seen;
  }
  EXPECT_EQ(seen, expected.size());
}

}  // namespace
}  // namespace ts
