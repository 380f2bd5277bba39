/// Page-mapped zeroed memory: untouched pages cost nothing, large buffers may use huge pages.
#pragma once

#include <algorithm>
#include <cstddef>
#include <new>
#include <utility>

#include <sys/mman.h>

namespace ts {

class PageBuffer {
 public:
  static constexpr size_t kHugePage = size_t{2} << 20;

  PageBuffer() = default;
  /// At least one byte. Huge pages are asked for from `huge_from` bytes on (0 = never). Throws
  /// std::bad_alloc.
  PageBuffer(size_t bytes, size_t huge_from) : size_(std::max<size_t>(bytes, 1)) {
    if (bytes > static_cast<size_t>(PTRDIFF_MAX)) throw std::bad_alloc();
    void* pages = mmap(nullptr, size_, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (pages == MAP_FAILED) throw std::bad_alloc();
    if (huge_from > 0 && size_ >= huge_from) madvise(pages, size_, MADV_HUGEPAGE);
    data_ = static_cast<std::byte*>(pages);
  }
  PageBuffer(PageBuffer&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  PageBuffer& operator=(PageBuffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }
  ~PageBuffer() {
    if (data_ != nullptr) munmap(data_, size_);
  }

  std::byte* data() noexcept { return data_; }
  const std::byte* data() const noexcept { return data_; }
  size_t size() const noexcept { return size_; }

 private:
  std::byte* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace ts
