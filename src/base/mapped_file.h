/// A memory map of a whole file: read-only, or of a file that lives in memory and is being made.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "base/page_buffer.h"

namespace ts {

/// What a file is for, in messages about one that cannot be it.
struct FilePurpose {
  std::string_view name = "model file";             ///< "give the path of a <name>"
  std::string_view if_empty = "download it again";  ///< what to do about one without content
};

class MappedFile {
 public:
  /// Maps `path`. Errors (missing, a directory, empty, unreadable) are IoError / FormatError that
  /// name the path and the reason.
  static std::shared_ptr<const MappedFile> open(const std::filesystem::path& path,
                                                const FilePurpose& purpose = {});
  /// A file of `size` zeros (at least one) that has no place in any directory; `name` stands for it
  /// in messages. Memory is taken when bytes are first written, and given back with the object.
  /// It differs from an opened file only in that writable_bytes() may be filled. Huge pages are for
  /// files that are filled without gaps (base/page_buffer.h).
  /// Errors: ResourceExhausted.
  static std::shared_ptr<MappedFile> in_memory(std::string name, size_t size,
                                               bool huge_pages = false);

  /// Whether this process has the file of that name mapped (by any of its names). Replacing it
  /// does the map no harm, but is hardly what a user wants who named it as an output.
  static bool is_open(const std::filesystem::path& path) noexcept;

  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();

  const std::filesystem::path& path() const noexcept { return path_; }
  std::span<const std::byte> bytes() const noexcept { return {data_, size_}; }
  uint64_t size() const noexcept { return size_; }
  /// Of a file made by in_memory(); empty for others. Fill it before others read it.
  std::span<std::byte> writable_bytes() noexcept {
    return in_memory() ? std::span(const_cast<std::byte*>(data_), size_) : std::span<std::byte>();
  }

  /// Compares the file's present size with the mapped one; throws IoError when it shrank since
  /// (touching the lost pages would kill the process).
  void check_not_truncated() const;
  /// Hints that the range is needed soon / no longer needed.
  void will_need(size_t offset, size_t length) const noexcept;
  void dont_need(size_t offset, size_t length) const noexcept;
  /// The range has been read for the last time: its pages leave this process; those of a file made
  /// by in_memory() are given back, and read as zeros from then on.
  void discard(size_t offset, size_t length) const noexcept;

 private:
  MappedFile() = default;
  void map();
  bool in_memory() const noexcept { return memory_.data() != nullptr; }
  std::filesystem::path path_;
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
  int fd_ = -1;                         ///< -1 = in memory
  PageBuffer memory_;                   ///< of a file in memory
  std::pair<uint64_t, uint64_t> id_{};  ///< st_dev, st_ino
};

}  // namespace ts
