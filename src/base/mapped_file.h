/// A read-only memory map of a whole file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>

namespace ts {

class MappedFile {
 public:
  /// Maps `path`. Errors (missing, a directory, empty, unreadable) are IoError / FormatError that
  /// name the path and the reason.
  static std::shared_ptr<const MappedFile> open(const std::filesystem::path& path);

  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();

  const std::filesystem::path& path() const noexcept { return path_; }
  std::span<const std::byte> bytes() const noexcept { return {data_, size_}; }
  uint64_t size() const noexcept { return size_; }

  /// Compares the file's present size with the mapped one; throws IoError when it shrank since
  /// (touching the lost pages would kill the process).
  void check_not_truncated() const;
  /// Locks all pages in memory; throws ResourceExhausted naming the limit that forbids it.
  void lock_pages() const;
  /// Hints that the range is needed soon / no longer needed.
  void will_need(size_t offset, size_t length) const noexcept;
  void dont_need(size_t offset, size_t length) const noexcept;

 private:
  MappedFile() = default;
  std::filesystem::path path_;
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
  int fd_ = -1;
};

}  // namespace ts
