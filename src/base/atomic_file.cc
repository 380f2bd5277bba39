#include "base/atomic_file.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <system_error>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <tensorsharp/error.hpp>

#include "base/checked_math.h"

namespace ts {
namespace {

constexpr size_t kBufferBytes = size_t{1} << 20;

[[noreturn]] void throw_write_error(const std::filesystem::path& path, int error) {
  const std::string message =
      fmt::format("{}: cannot write: {}", path.string(), std::strerror(error));
  if (error == ENOSPC || error == EDQUOT || error == EFBIG) {
    throw ResourceExhausted(message + "; free some space or choose another place");
  }
  throw IoError(message);
}

}  // namespace

AtomicFile::AtomicFile(const std::filesystem::path& path, bool overwrite)
    : path_(path), overwrite_(overwrite) {
  std::error_code ec;
  // A link stays a link: what it points to is replaced.
  if (std::filesystem::is_symlink(path_, ec) && std::filesystem::exists(path_, ec)) {
    const auto target = std::filesystem::canonical(path_, ec);
    if (!ec) path_ = target;
  }
  struct stat status {};
  if (::stat(path_.c_str(), &status) == 0) {
    if (S_ISDIR(status.st_mode))
      throw InvalidArgument(fmt::format("{}: is a directory; name a file", path.string()));
    if (!S_ISREG(status.st_mode))
      throw InvalidArgument(fmt::format(
          "{}: is no ordinary file (a device, pipe or socket); name a file", path.string()));
    if (!overwrite)
      throw InvalidArgument(
          fmt::format("{}: exists already; use --force to overwrite it", path.string()));
  }
  open_unnamed();
  if (fd_ < 0) open_named();
  buffer_.reserve(kBufferBytes);
}

void AtomicFile::open_unnamed() {
  // A file without a name vanishes with the process, however that ends. It gets its name through
  // /proc; without that, or where the file system cannot do it, a temporary name serves.
  if (::access("/proc/self/fd", X_OK) != 0) return;
  const std::filesystem::path parent = path_.has_parent_path() ? path_.parent_path() : ".";
  fd_ = ::open(parent.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0666);
}

void AtomicFile::open_named() {
  const std::string pattern = path_.string() + ".tmp-XXXXXX";
  std::vector<char> name(pattern.begin(), pattern.end());
  name.push_back('\0');
  fd_ = ::mkostemp(name.data(), O_CLOEXEC);
  if (fd_ < 0) throw_write_error(path_, errno);
  temporary_ = name.data();
  const mode_t mask = ::umask(0);
  ::umask(mask);
  ::fchmod(fd_, 0666 & ~mask);
}

AtomicFile::~AtomicFile() {
  if (fd_ >= 0) ::close(fd_);
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

void AtomicFile::require_space(uint64_t bytes) const {
  struct statvfs status {};
  // A file system that does not know its size (some network ones) is given the benefit of doubt.
  if (::fstatvfs(fd_, &status) != 0 || status.f_blocks == 0) return;
  const auto free = checked_mul(status.f_bavail, status.f_frsize);
  if (!free || *free >= bytes) return;
  throw ResourceExhausted(
      fmt::format("{}: needs {} bytes and its file system has {} free; free some space or choose "
                  "another place",
                  path_.string(), bytes, *free));
}

void AtomicFile::flush() {
  size_t done = 0;
  while (done < buffer_.size()) {
    const ssize_t n = ::write(fd_, buffer_.data() + done, buffer_.size() - done);
    if (n < 0) {
      if (errno == EINTR) continue;
      throw_write_error(path_, errno);
    }
    done += static_cast<size_t>(n);
  }
  buffer_.clear();
}

void AtomicFile::write(std::span<const std::byte> bytes) {
  const char* data = reinterpret_cast<const char*>(bytes.data());
  size_t left = bytes.size();
  while (left > 0) {
    const size_t chunk = std::min(left, kBufferBytes - buffer_.size());
    buffer_.append(data, chunk);
    data += chunk;
    left -= chunk;
    if (buffer_.size() == kBufferBytes) flush();
  }
  size_ += bytes.size();
}

void AtomicFile::write_zeros(uint64_t count) {
  static constexpr std::byte kZeros[4096]{};
  while (count > 0) {
    const size_t chunk = static_cast<size_t>(std::min<uint64_t>(count, sizeof(kZeros)));
    write({kZeros, chunk});
    count -= chunk;
  }
}

void AtomicFile::write_at(uint64_t offset, std::span<const std::byte> bytes) {
  flush();
  size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t n =
        ::pwrite(fd_, bytes.data() + done, bytes.size() - done, static_cast<off_t>(offset + done));
    if (n < 0) {
      if (errno == EINTR) continue;
      throw_write_error(path_, errno);
    }
    done += static_cast<size_t>(n);
  }
}

void AtomicFile::commit() {
  flush();
  if (::fsync(fd_) != 0) throw_write_error(path_, errno);
  if (temporary_.empty()) give_name();
  if (::close(fd_) != 0) {
    fd_ = -1;
    throw_write_error(path_, errno);
  }
  fd_ = -1;
  // give_name() has already made the target when it may not replace one.
  if (!temporary_.empty()) rename_to_target();
  temporary_.clear();
  const std::filesystem::path parent = path_.has_parent_path() ? path_.parent_path() : ".";
  const int dir = ::open(parent.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (dir >= 0) {
    ::fsync(dir);
    ::close(dir);
  }
}

void AtomicFile::give_name() {
  const std::string own = fmt::format("/proc/self/fd/{}", fd_);
  const auto link_as = [&](const char* name) {
    return ::linkat(AT_FDCWD, own.c_str(), AT_FDCWD, name, AT_SYMLINK_FOLLOW) == 0;
  };
  if (!overwrite_) {
    if (link_as(path_.c_str())) return;
    if (errno == EEXIST) throw_exists_or(errno);
    copy_to_named();
    return;
  }
  // link() cannot replace a file, rename() can: a name for the moment between the two.
  for (int attempt = 0; attempt < 100; ++attempt) {
    const auto ticks =
        static_cast<uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
    temporary_ = fmt::format("{}.tmp-{:x}", path_.string(), ticks + static_cast<uint64_t>(attempt));
    if (link_as(temporary_.c_str())) return;
    if (errno != EEXIST) break;
  }
  temporary_.clear();
  copy_to_named();
}

void AtomicFile::copy_to_named() {
  const int source = std::exchange(fd_, -1);
  struct Close {
    int fd;
    ~Close() { ::close(fd); }
  } const close_it{source};
  open_named();
  std::vector<char> block(kBufferBytes);
  for (off_t at = 0;;) {
    const ssize_t n = ::pread(source, block.data(), block.size(), at);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw_write_error(path_, errno);
    if (n == 0) break;
    buffer_.assign(block.data(), static_cast<size_t>(n));
    flush();
    at += n;
  }
  if (::fsync(fd_) != 0) throw_write_error(path_, errno);
}

void AtomicFile::rename_to_target() {
  if (!overwrite_) {
    // link() fails when the target appeared meanwhile, where rename() would replace it.
    if (::link(temporary_.c_str(), path_.c_str()) == 0) {
      ::unlink(temporary_.c_str());
      return;
    }
    if (errno == EEXIST) throw_exists_or(errno);
    // No hard links on this file system: fall back to rename.
  }
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) throw_write_error(path_, errno);
}

void AtomicFile::throw_exists_or(int error) const {
  if (error == EEXIST)
    throw InvalidArgument(
        fmt::format("{}: exists already; use --force to overwrite it", path_.string()));
  throw_write_error(path_, error);
}

}  // namespace ts
