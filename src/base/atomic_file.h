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
  /// Creates the file without its name. Throws InvalidArgument when `path` exists and `overwrite`
  /// is false or when it is no ordinary file; IoError when the directory cannot be written. Where
  /// `path` is a link, the file it points to is meant.
  AtomicFile(const std::filesystem::path& path, bool overwrite);
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;
  /// Without commit() nothing stays behind. Where the file system knows files without names that
  /// holds even when the process is killed.
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

  /// Flushes, syncs and gives the file its name.
  void commit();

 private:
  void open_unnamed();
  void open_named();
  void give_name();
  /// Where a file without a name cannot be given one after all.
  void copy_to_named();
  void rename_to_target();
  [[noreturn]] void throw_exists_or(int error) const;
  void flush();
  std::filesystem::path path_, temporary_;
  std::string buffer_;
  uint64_t size_ = 0;
  int fd_ = -1;
  bool overwrite_ = false;
};

}  // namespace ts
