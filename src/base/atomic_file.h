/// Output files that appear complete or not at all: written under a temporary name beside the
/// target, synced, then renamed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

namespace ts {

class AtomicFile {
 public:
  /// Creates the temporary file. Throws InvalidArgument when `path` exists and `overwrite` is
  /// false, IoError when the directory cannot be written.
  AtomicFile(const std::filesystem::path& path, bool overwrite);
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;
  /// Removes the temporary file unless commit() succeeded.
  ~AtomicFile();

  /// ResourceExhausted when the file system has less than `bytes` free: better at the start than
  /// after minutes of writing. Nothing is reserved, so writing may still fail later.
  void require_space(uint64_t bytes) const;
  /// Appends. A full disk is ResourceExhausted, any other failure IoError; both name the target.
  void write(std::span<const std::byte> bytes);
  void write_zeros(uint64_t count);
  /// Overwrites earlier bytes (for headers whose content is known last).
  void write_at(uint64_t offset, std::span<const std::byte> bytes);
  uint64_t size() const noexcept { return size_; }
  const std::filesystem::path& path() const noexcept { return path_; }
  /// The name the bytes live under until commit().
  const std::filesystem::path& temporary_path() const noexcept { return temporary_; }

  /// Flushes, syncs and renames to the target.
  void commit();

 private:
  void flush();
  std::filesystem::path path_, temporary_;
  std::string buffer_;
  uint64_t size_ = 0;
  int fd_ = -1;
  bool overwrite_ = false;
};

}  // namespace ts
