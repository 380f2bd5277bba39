#include "base/profile.h"

#include <string>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/memory_bandwidth.h"

namespace ts {
namespace {

TEST(Profile, RecordsOnlyWhileOn) {
  { const profile::Scope ignored("before"); }
  profile::start();
  {
    const profile::Scope outer("outer");
    for (int i = 0; i < 3; ++i)
      const profile::Scope inner("inner");
    std::thread([] { const profile::Scope other("other thread"); }).join();
  }
  profile::stop();
  { const profile::Scope ignored("after"); }

  const auto events = profile::events();
  ASSERT_EQ(events.size(), 5U);
  EXPECT_STREQ(events.back().name, "outer") << "recorded when the scope ends";
  EXPECT_NE(events[3].thread, events[4].thread);
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_GE(events[i].start_ns, events[4].start_ns);
    EXPECT_LE(events[i].duration_ns, events[4].duration_ns);
  }
  uint64_t inner_count = 0;
  for (const auto& total : profile::totals()) {
    EXPECT_THAT(total.name, testing::AnyOf("outer", "inner", "other thread"));
    if (total.name == "inner") inner_count = total.count;
  }
  EXPECT_EQ(inner_count, 3U);
  const std::string json = profile::chrome_trace_json();
  EXPECT_THAT(json, testing::HasSubstr("\"name\":\"inner\",\"ph\":\"X\""));
  EXPECT_EQ(json.find("before"), std::string::npos);
}

TEST(Profile, EventLimitKeepsTotals) {
  profile::start(2);
  for (int i = 0; i < 10; ++i)
    const profile::Scope scope("op");
  profile::stop();
  EXPECT_EQ(profile::events().size(), 2U);
  EXPECT_EQ(profile::totals().at(0).count, 10U);
}

TEST(BandwidthMeter, ComparesLoopsAndReadsPlausibly) {
  BandwidthMeter meter(2, size_t{32} << 20);
  EXPECT_GE(meter.n_loops(), 4);
  EXPECT_GE(meter.bytes_per_thread(), size_t{16} << 20);
  EXPECT_FALSE(meter.loop_name().empty());
  const double rate = meter.pass(size_t{8} << 20);
  EXPECT_GT(rate, 1e7);
  EXPECT_LT(rate, 1e13);
}

TEST(BandwidthMeter, OneRowPerThreadCount) {
  const auto rows = measure_read_bandwidth(3, size_t{16} << 20);
  ASSERT_EQ(rows.size(), 3U);
  EXPECT_EQ(rows[0].n_threads, 1);
  EXPECT_EQ(rows[1].n_threads, 2);
  EXPECT_EQ(rows[2].n_threads, 3);
  for (const auto& row : rows) {
    EXPECT_LE(row.lowest, row.bytes_per_second);
    EXPECT_LE(row.bytes_per_second, row.highest);
  }
}

TEST(BandwidthMeter, CanBeCancelled) {
  CancelToken cancel;
  cancel.cancel();
  Progress progress;
  progress.cancel = &cancel;
  EXPECT_THROW(BandwidthMeter(1, size_t{16} << 20, progress), Cancelled);
}

}  // namespace
}  // namespace ts
