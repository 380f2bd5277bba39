// Memory in pages: what is zero, aligned, given back, and what may be locked.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <string>

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <tensorsharp/error.hpp>

#include "base/locked_memory.h"
#include "base/page_buffer.h"

namespace ts {
namespace {

constexpr size_t kMiB = size_t{1} << 20;

bool all_zero(std::span<const std::byte> bytes) {
  return std::all_of(bytes.begin(), bytes.end(), [](std::byte b) { return b == std::byte{0}; });
}

std::span<const std::byte> bytes_of(const PageBuffer& buffer) {
  return {buffer.data(), buffer.size()};
}

TEST(PageBuffer, BeginsAtAHugePageWhereOneIsAskedFor) {
  for (const size_t bytes : {2 * kMiB, 3 * kMiB + 5, 9 * kMiB}) {
    PageBuffer buffer(bytes, PageBuffer::kHugePage);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer.data()) % PageBuffer::kHugePage, 0U);
    EXPECT_EQ(buffer.size(), bytes);
    EXPECT_TRUE(all_zero(bytes_of(buffer)));
    std::memset(buffer.data(), 1, bytes);  // all of it is ours
    buffer.clear();
    EXPECT_TRUE(all_zero(bytes_of(buffer)));
  }
  PageBuffer small(100, PageBuffer::kHugePage), none(100, 0);
  std::memset(small.data(), 1, 100);
  std::memset(none.data(), 1, 100);
  EXPECT_THROW(PageBuffer(SIZE_MAX, 1), std::bad_alloc);
  EXPECT_THROW(PageBuffer(SIZE_MAX, 0), std::bad_alloc);
}

TEST(PageBuffer, GivesBackWholePagesOnly) {
  const auto page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  PageBuffer buffer(8 * page, 0);
  std::memset(buffer.data(), 1, buffer.size());
  give_back({buffer.data() + 1, 4 * page});
  EXPECT_EQ(buffer.data()[page - 1], std::byte{1});
  EXPECT_EQ(buffer.data()[4 * page], std::byte{1});
#if defined(__x86_64__)  // other systems run this under emulation, which does not pass the hint on
  EXPECT_TRUE(all_zero({buffer.data() + page, 3 * page}));
#endif
  // Hints about bytes that are no whole page, or none at all.
  give_back({buffer.data() + 5 * page + 1, 10});
  give_back({});
  prepare_to_read({buffer.data() + 1, 1});
  prepare_to_write({buffer.data() + 1, 1});
  will_read(bytes_of(buffer));
  EXPECT_EQ(buffer.data()[5 * page + 1], std::byte{1});
}

// Emulation refuses to lock memory; sanitizers only pretend to.
#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define TS_MEMORY_IS_LOCKED 1
#else
#define TS_MEMORY_IS_LOCKED 0
#endif

/// The error of `work` without the right to lock more than `limit` bytes; "" when there is none.
/// Ends the process: limits and rights do not come back.
template <typename F>
[[noreturn]] void exit_with_error_under_limit(rlim_t limit, F&& work) {
  const struct rlimit both = {limit, limit};
  const bool limited = ::setrlimit(RLIMIT_MEMLOCK, &both) == 0 &&
                       (::geteuid() != 0 || ::setresuid(65534, 65534, 65534) == 0);
  try {
    work();
    std::fprintf(stderr, "no error");
  } catch (const ResourceExhausted& error) {
    std::fprintf(stderr, "%s", error.what());
  }
  ::_exit(limited ? 3 : 4);
}

TEST(LockedMemory, SaysWhatForbidsIt) {
  EXPECT_EXIT(exit_with_error_under_limit(kMiB, [] { require_lockable(8 * kMiB, "m.gguf"); }),
              testing::ExitedWithCode(3),
              "m.gguf: cannot lock 8388608 bytes in memory: the limit is 1048576 bytes; .*"
              "ulimit -l.*leave out --mlock");
#if TS_MEMORY_IS_LOCKED
  EXPECT_EXIT(exit_with_error_under_limit(kMiB, [] { require_lockable(kMiB / 2, "m.gguf"); }),
              testing::ExitedWithCode(3), "no error");
  EXPECT_EXIT(exit_with_error_under_limit(kMiB,
                                          [] {
                                            const PageBuffer buffer(8 * kMiB, 0);
                                            lock_memory({bytes_of(buffer)}, "m.gguf");
                                          }),
              testing::ExitedWithCode(3), "m.gguf: cannot lock 8388608 bytes");
#endif
}

/// Of this process, as the system counts.
uint64_t locked_kilobytes() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    unsigned long long value = 0;
    if (std::sscanf(line.c_str(), "VmLck: %llu kB", &value) == 1) return value;
  }
  return 0;
}

TEST(LockedMemory, LocksAllRangesOnce) {
#if !TS_MEMORY_IS_LOCKED
  GTEST_SKIP() << "emulation and sanitizers do not lock";
#endif
  const auto page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  const uint64_t before = locked_kilobytes();
  {
    const PageBuffer buffer(16 * page, 0);
    const std::byte* p = buffer.data();
    // Out of order, sharing a page, with a gap of three pages, and nothing.
    lock_memory({{p + 8 * page, page + 1}, {p + 10, page}, {p, 10}, {}}, "some");
    EXPECT_EQ(locked_kilobytes() - before, 4 * page / 1024);
  }
  EXPECT_EQ(locked_kilobytes(), before);
}

}  // namespace
}  // namespace ts
