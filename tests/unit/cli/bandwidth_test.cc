#include "cli/bandwidth.h"

#include <cstdlib>
#include <fstream>

#include <gtest/gtest.h>

#include "support/temp_dir.h"

namespace ts::cli {
namespace {

class BandwidthCache : public testing::Test {
 protected:
  BandwidthCache() { setenv("XDG_CACHE_HOME", dir_.path().c_str(), 1); }
  ~BandwidthCache() override { unsetenv("XDG_CACHE_HOME"); }
  std::filesystem::path file() const { return dir_ / "tensorsharp/bandwidth.json"; }
  test::TempDir dir_;
};

TEST_F(BandwidthCache, KeepsFiguresPerThreadCount) {
  keep_read_bandwidth({{1, 1e9}, {2, 2e9}});
  keep_read_bandwidth({{2, 3e9}});
  const auto one = read_bandwidth(1), two = read_bandwidth(2);
  ASSERT_TRUE(one && two);
  EXPECT_TRUE(one->from_cache);
  EXPECT_EQ(one->bytes_per_second, 1e9);
  EXPECT_EQ(two->bytes_per_second, 3e9);
}

TEST_F(BandwidthCache, ADamagedOrForeignCacheIsNotUsed) {
  for (const char* text : {"", "{", "[1]", R"({"cpu": 3})",
                           R"({"cpu": "another", "read_bytes_per_second": {"1": 1e9}})"}) {
    std::filesystem::create_directories(file().parent_path());
    std::ofstream(file()) << text;
    const auto found = read_bandwidth(1);
    EXPECT_TRUE(!found || !found->from_cache) << text;
    keep_read_bandwidth({{1, 5e9}});
    ASSERT_TRUE(read_bandwidth(1));
    EXPECT_EQ(read_bandwidth(1)->bytes_per_second, 5e9);
  }
}

}  // namespace
}  // namespace ts::cli
