#include "base/page_buffer.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <new>
#include <string>

#include <sys/mman.h>
#include <unistd.h>

namespace ts {
namespace {

/// The pages of `bytes` that are wholly inside, or all that it touches.
enum class PageRange { kInside, kTouched };

void advise(std::span<const std::byte> bytes, PageRange range, int advice) noexcept {
  static const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto first = reinterpret_cast<uintptr_t>(bytes.data());
  const uintptr_t last = first + bytes.size();
  const bool inside = range == PageRange::kInside;
  const uintptr_t begin = (first + (inside ? page - 1 : 0)) / page * page;
  const uintptr_t end = (last + (inside ? 0 : page - 1)) / page * page;
  if (end > begin) ::madvise(reinterpret_cast<void*>(begin), end - begin, advice);
}

}  // namespace

PageBuffer::PageBuffer(size_t bytes, size_t huge_from) : size_(std::max<size_t>(bytes, 1)) {
  const bool huge = huge_from > 0 && size_ >= huge_from;
  const size_t slack = huge ? kHugePage : 0;
  if (size_ > static_cast<size_t>(PTRDIFF_MAX) - slack) throw std::bad_alloc();
  void* pages = ::mmap(nullptr, size_ + slack, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (pages == MAP_FAILED) throw std::bad_alloc();
  auto* begin = static_cast<std::byte*>(pages);
  if (huge) {
    // The surplus before the first multiple and behind the last page goes back.
    const size_t before = (kHugePage - reinterpret_cast<uintptr_t>(begin) % kHugePage) % kHugePage;
    const auto page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
    const size_t used = (before + size_ + page - 1) / page * page;
    if (before > 0) ::munmap(begin, before);
    if (used < size_ + slack) ::munmap(begin + used, size_ + slack - used);
    begin += before;
    ::madvise(begin, size_, MADV_HUGEPAGE);
  } else if (huge_from == 0) {
    ::madvise(begin, size_, MADV_NOHUGEPAGE);
  }
  data_ = begin;
}

PageBuffer::~PageBuffer() {
  if (data_ != nullptr) ::munmap(data_, size_);
}

void PageBuffer::clear() noexcept {
  // Pages that are dropped are zero when touched again. Where that fails (they are locked in
  // memory), zeros are written.
  if (data_ != nullptr && ::madvise(data_, size_, MADV_DONTNEED) != 0) std::memset(data_, 0, size_);
}

void will_read(std::span<const std::byte> bytes) noexcept {
  advise(bytes, PageRange::kTouched, MADV_WILLNEED);
}

void prepare_to_read([[maybe_unused]] std::span<const std::byte> bytes) noexcept {
#ifdef MADV_POPULATE_READ
  advise(bytes, PageRange::kTouched, MADV_POPULATE_READ);
#endif
}

void prepare_to_write([[maybe_unused]] std::span<std::byte> bytes) noexcept {
#ifdef MADV_POPULATE_WRITE
  advise(bytes, PageRange::kInside, MADV_POPULATE_WRITE);
#endif
}

void give_back(std::span<std::byte> bytes) noexcept {
  advise(bytes, PageRange::kInside, MADV_DONTNEED);
}

std::optional<uint64_t> bytes_in_huge_pages() {
  std::ifstream rollup("/proc/self/smaps_rollup");
  for (std::string line; std::getline(rollup, line);) {
    unsigned long long kilobytes = 0;
    if (std::sscanf(line.c_str(), "AnonHugePages: %llu kB", &kilobytes) == 1)
      return uint64_t{kilobytes} * 1024;
  }
  return std::nullopt;
}

}  // namespace ts
