#include "base/thread_pool.h"

#include <atomic>
#include <chrono>
#include <numeric>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>

#include <tensorsharp/error.hpp>

namespace ts {
namespace {

TEST(ThreadPool, EveryMemberRunsOncePerRegion) {
  for (const int n : {1, 2, 3, 8}) {
    ThreadPool pool(n);
    std::vector<int> calls(static_cast<size_t>(n));
    for (int region = 0; region < 2000; ++region) {
      pool.run([&](int thread, int count) {
        ASSERT_EQ(count, n);
        ++calls[static_cast<size_t>(thread)];  // members are distinct: no race
      });
    }
    for (const int c : calls)
      EXPECT_EQ(c, 2000);
  }
}

TEST(ThreadPool, RegionsAfterSleepStillRun) {
  ThreadPool pool(3);
  std::atomic<int> sum{0};
  for (int i = 0; i < 5; ++i) {
    pool.run([&](int, int) { ++sum; });
    std::this_thread::sleep_for(std::chrono::milliseconds(2));  // long past the spinning
  }
  EXPECT_EQ(sum, 15);
}

TEST(ThreadPool, ParallelForCoversTheRangeInGrains) {
  ThreadPool pool(4);
  for (const int64_t n : {0, 1, 5, 63, 64, 65, 1000}) {
    for (const int64_t grain : {1, 4, 64}) {
      std::vector<std::atomic<int>> hits(static_cast<size_t>(n));
      pool.parallel_for(n, grain, [&](int64_t begin, int64_t end) {
        EXPECT_EQ(begin % grain, 0);
        EXPECT_TRUE(end % grain == 0 || end == n);
        for (int64_t i = begin; i < end; ++i)
          ++hits[static_cast<size_t>(i)];
      });
      for (const auto& h : hits)
        EXPECT_EQ(h, 1);
    }
  }
}

/// Waits at most five seconds.
template <typename Condition>
bool eventually(Condition condition) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(5);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::yield();
  }
  return true;
}

/// The first CPUs that this process may use, at most n.
std::vector<int> first_cpus(size_t n) {
  cpu_set_t set;
  CPU_ZERO(&set);
  sched_getaffinity(0, sizeof(set), &set);
  std::vector<int> cpus;
  for (int i = 0; i < CPU_SETSIZE && cpus.size() < n; ++i) {
    if (CPU_ISSET(static_cast<size_t>(i), &set)) cpus.push_back(i);
  }
  return cpus;
}

/// The members that computed pieces of a region in which the caller waits for `wanted` others, and
/// in which member 1 takes `delay` for its first piece.
std::vector<int> members_of_region(ThreadPool& pool, int wanted, std::chrono::milliseconds delay) {
  std::vector<int> pieces(static_cast<size_t>(pool.n_threads()));
  std::atomic<int> others{0};
  pool.for_ranges(256, 1, [&](int member, int64_t, int64_t) {
    if (pieces[static_cast<size_t>(member)]++ == 0 && member != 0) {
      ++others;
      if (member == 1) std::this_thread::sleep_for(delay);
    }
    if (member == 0) {
      EXPECT_TRUE(eventually([&] { return others >= wanted; }));
    }
  });
  std::vector<int> members;
  for (int i = 0; i < pool.n_threads(); ++i) {
    if (pieces[static_cast<size_t>(i)] > 0) members.push_back(i);
  }
  return members;
}

TEST(ThreadPool, WhatADelayedMemberLeavesIsDoneByOthers) {
  const std::vector<int> cpus = first_cpus(2);
  if (cpus.size() < 2) GTEST_SKIP() << "one CPU";
  ThreadPool pool(2, cpus);
  std::vector<std::atomic<int>> by(64);
  std::atomic<bool> begun{false};
  std::atomic<int> of_caller{0};
  pool.for_ranges(64, 1, [&](int member, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      ++by[static_cast<size_t>(i)];
    if (member == 1) {
      begun = true;
      // Of its own share of 32 this member takes a quarter; the rest must go on without it.
      EXPECT_TRUE(eventually([&] { return of_caller == 56; }));
    } else {
      EXPECT_TRUE(eventually([&] { return begun.load(); }));
      of_caller += static_cast<int>(end - begin);
    }
  });
  for (const auto& n : by)
    EXPECT_EQ(n, 1);
}

TEST(ThreadPool, AMemberThatStallsTheOthersSitsOutAndComesBack) {
  using std::chrono::milliseconds;
  const std::vector<int> cpus = first_cpus(2);
  if (cpus.size() < 2) GTEST_SKIP() << "one CPU";
  ThreadPool pool(2, cpus);
  EXPECT_EQ(members_of_region(pool, 1, milliseconds(50)), (std::vector<int>{0, 1}));
  for (int i = 0; i < 20; ++i)
    EXPECT_EQ(members_of_region(pool, 0, milliseconds(0)), (std::vector<int>{0}));
  std::this_thread::sleep_for(milliseconds(450));
  EXPECT_EQ(members_of_region(pool, 1, milliseconds(20)), (std::vector<int>{0, 1}));
  // A region for everybody does not leave it out.
  std::atomic<int> ran{0};
  pool.run([&](int, int) { ++ran; });
  EXPECT_EQ(ran, 2);
  EXPECT_EQ(members_of_region(pool, 1, milliseconds(20)), (std::vector<int>{0, 1}));
}  // and a pool with a member asleep on the bench can be ended

TEST(ThreadPool, NoMemberComputesOnTheCallersCpu) {
  ThreadPool pool(2, first_cpus(1));
  for (int i = 0; i < 200; ++i) {
    EXPECT_EQ(members_of_region(pool, 0, std::chrono::milliseconds(0)), (std::vector<int>{0}));
    std::this_thread::yield();
  }
}

TEST(ThreadPool, RangesEndAtTheFirstException) {
  ThreadPool pool(3);
  for (int i = 0; i < 50; ++i) {
    EXPECT_THROW(pool.for_ranges(300, 1,
                                 [](int, int64_t begin, int64_t) {
                                   if (begin >= 0) throw std::runtime_error("piece");
                                 }),
                 std::runtime_error);
    std::atomic<int64_t> sum{0};
    pool.for_ranges(300, 7, [&](int, int64_t begin, int64_t end) { sum += end - begin; });
    EXPECT_EQ(sum, 300);
  }
}

TEST(ThreadPool, SharesAreBalanced) {
  for (int count = 1; count <= 9; ++count) {
    int64_t at = 0;
    for (int t = 0; t < count; ++t) {
      const auto [begin, end] = ThreadPool::share(100, 4, t, count);
      EXPECT_EQ(begin, at);
      EXPECT_LE(end - begin, (25 + count - 1) / count * 4);
      at = end;
    }
    EXPECT_EQ(at, 100);
  }
}

TEST(ThreadPool, ExceptionsReachTheCallerAndThePoolSurvives) {
  for (const int n : {1, 4}) {
    ThreadPool pool(n);
    for (int thrower = 0; thrower < n; ++thrower) {
      try {
        pool.run([&](int thread, int) {
          if (thread == thrower) throw std::runtime_error("member " + std::to_string(thread));
        });
        FAIL();
      } catch (const std::runtime_error& e) {
        EXPECT_EQ(e.what(), "member " + std::to_string(thrower));
      }
      std::atomic<int> ran{0};
      pool.run([&](int, int) { ++ran; });
      EXPECT_EQ(ran, n);
    }
  }
}

TEST(ThreadPool, NestedUseIsAnError) {
  for (const int n : {1, 3}) {
    ThreadPool pool(n);
    ThreadPool other(2);
    EXPECT_THROW(pool.run([&](int, int) { pool.run([](int, int) {}); }), InternalError);
    EXPECT_THROW(pool.run([&](int, int) { other.run([](int, int) {}); }), InternalError);
    EXPECT_THROW(pool.parallel_for(1, 1, [&](int64_t, int64_t) { pool.run([](int, int) {}); }),
                 InternalError);
  }
}

TEST(ThreadPool, CallersTakeTurns) {
  ThreadPool pool(3);
  int64_t counter = 0;  // unsynchronised on purpose: regions must not overlap
  std::vector<std::thread> callers;
  for (int c = 0; c < 4; ++c) {
    callers.emplace_back([&] {
      for (int i = 0; i < 500; ++i)
        pool.run([&](int thread, int) {
          if (thread == 1) ++counter;
        });
    });
  }
  for (auto& t : callers)
    t.join();
  EXPECT_EQ(counter, 2000);
}

TEST(ThreadPool, BadSizesAndCoresAreErrors) {
  EXPECT_THROW(ThreadPool(0), InvalidArgument);
  EXPECT_THROW(ThreadPool(-3), InvalidArgument);
  EXPECT_THROW(ThreadPool(1 << 20), InvalidArgument);
  try {
    ThreadPool pool(2, {1000});
    FAIL();
  } catch (const InvalidArgument& e) {
    EXPECT_THAT(e.what(), testing::HasSubstr("1000"));
  }
}

TEST(ThreadPool, PinsMembersAndRestoresTheCaller) {
  cpu_set_t before;
  ASSERT_EQ(sched_getaffinity(0, sizeof(before), &before), 0);
  const int first = first_cpus(1).at(0);
  ThreadPool pool(2, {first});
  std::vector<int> cpus(2);
  pool.run([&](int thread, int) { cpus[static_cast<size_t>(thread)] = sched_getcpu(); });
  EXPECT_THAT(cpus, testing::Each(first));
  cpu_set_t after;
  ASSERT_EQ(sched_getaffinity(0, sizeof(after), &after), 0);
  EXPECT_TRUE(CPU_EQUAL(&before, &after));
}

}  // namespace
}  // namespace ts
