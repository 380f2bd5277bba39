#include "base/locked_memory.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <functional>

#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <tensorsharp/error.hpp>

namespace ts {
namespace {

[[noreturn]] void refuse(uint64_t bytes, const std::string& what, int error) {
  struct rlimit limit {};
  ::getrlimit(RLIMIT_MEMLOCK, &limit);
  // ENOMEM and EPERM are how a limit speaks.
  const bool limited = error != EAGAIN && limit.rlim_cur != RLIM_INFINITY && limit.rlim_cur < bytes;
  throw ResourceExhausted(fmt::format(
      "{}: cannot lock {} bytes in memory: {}; raise the limit (ulimit -l, RLIMIT_MEMLOCK) or "
      "leave "
      "out --mlock",
      what, bytes,
      limited ? fmt::format("the limit is {} bytes", limit.rlim_cur) : std::strerror(error)));
}

}  // namespace

void require_lockable(uint64_t bytes, const std::string& what) {
#ifdef MLOCK_ONFAULT
  // Address space without pages, locked "when touched": the limit counts it, memory does not.
  void* space =
      ::mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (space == MAP_FAILED) return;  // a limit of another kind, which loading will meet
  const int error = ::mlock2(space, bytes, MLOCK_ONFAULT) == 0 ? 0 : errno;
  ::munmap(space, bytes);
  // ENOSYS: a system too old to answer; locking itself will.
  if (error != 0 && error != ENOSYS) refuse(bytes, what, error);
#else
  static_cast<void>(bytes);
  static_cast<void>(what);
#endif
}

void lock_memory(std::vector<std::span<const std::byte>> ranges, const std::string& what) {
  const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  std::sort(ranges.begin(), ranges.end(),
            [](const auto& a, const auto& b) { return std::less<>()(a.data(), b.data()); });
  uintptr_t begin = 0, end = 0;  // pages to lock
  const auto lock = [&] {
    if (end > begin && ::mlock(reinterpret_cast<void*>(begin), end - begin) != 0)
      refuse(end - begin, what, errno);
  };
  for (const auto& range : ranges) {
    if (range.empty()) continue;
    const auto first = reinterpret_cast<uintptr_t>(range.data()) / page * page;
    const uintptr_t last =
        (reinterpret_cast<uintptr_t>(range.data()) + range.size() + page - 1) / page * page;
    if (first > end) {
      lock();
      begin = first;
    }
    end = std::max(end, last);
  }
  lock();
}

}  // namespace ts
