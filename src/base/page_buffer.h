/// Memory taken from the system in whole pages, and advice to the system about pages.
///
/// Fresh memory comes page by page when it is first touched, each zeroed by the system. In 4 KiB
/// pages that costs more than copying the same bytes several times; 2 MiB ("huge") pages cost a
/// fifth, and need fewer address translations when they are read. Systems that offer them only on
/// request (Linux: transparent_hugepage/enabled = madvise) are asked; a system that has none gives
/// ordinary pages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>

namespace ts {

/// Zeroed memory of its own; untouched pages cost nothing.
class PageBuffer {
 public:
  static constexpr size_t kHugePage = size_t{2} << 20;

  PageBuffer() = default;
  /// At least one byte. From `huge_from` bytes on (0 = never) it begins at a multiple of kHugePage
  /// and huge pages are asked for. Throws std::bad_alloc.
  PageBuffer(size_t bytes, size_t huge_from);
  PageBuffer(PageBuffer&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  PageBuffer& operator=(PageBuffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }
  ~PageBuffer();

  /// All zero again, without touching pages that were never used.
  void clear() noexcept;

  std::byte* data() noexcept { return data_; }
  const std::byte* data() const noexcept { return data_; }
  size_t size() const noexcept { return size_; }

 private:
  std::byte* data_ = nullptr;
  size_t size_ = 0;
};

// All of these are hints about bytes of some map: what the system does not know or refuses is not
// an error.

/// The bytes will be read soon: a file's pages are fetched from the disk in the background.
void will_read(std::span<const std::byte> bytes) noexcept;
/// Makes the pages of the bytes present at once, which is cheaper than one by one when touched.
void prepare_to_read(std::span<const std::byte> bytes) noexcept;
void prepare_to_write(std::span<std::byte> bytes) noexcept;
/// Takes the whole pages inside `bytes` from the process. Those of a file are read again when
/// touched; anonymous memory is zero then.
void give_back(std::span<std::byte> bytes) noexcept;

/// Bytes of this process that lie in huge pages; nothing where the system does not tell.
std::optional<uint64_t> bytes_in_huge_pages();

}  // namespace ts
