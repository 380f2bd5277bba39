#include "base/mapped_file.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <new>
#include <set>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <tensorsharp/error.hpp>

namespace ts {
namespace {

/// The files that are mapped now, by device and inode.
struct OpenFiles {
  std::mutex mutex;
  std::multiset<std::pair<uint64_t, uint64_t>> ids;
};

OpenFiles& open_files() {
  static auto* files = new OpenFiles();  // never destroyed: maps may outlive static objects
  return *files;
}

}  // namespace

bool MappedFile::is_open(const std::filesystem::path& path) noexcept {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) return false;
  OpenFiles& files = open_files();
  const std::lock_guard lock(files.mutex);
  return files.ids.contains({status.st_dev, status.st_ino});
}

std::shared_ptr<const MappedFile> MappedFile::open(const std::filesystem::path& path,
                                                   const FilePurpose& purpose) {
  std::shared_ptr<MappedFile> file(new MappedFile());
  file->path_ = path;
  // O_NONBLOCK: a FIFO must be refused below, not waited for.
  file->fd_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file->fd_ < 0) {
    throw IoError(fmt::format("{}: cannot open: {}", path.string(), std::strerror(errno)));
  }
  struct stat status {};
  if (::fstat(file->fd_, &status) != 0) {
    throw IoError(fmt::format("{}: cannot read the size: {}", path.string(), std::strerror(errno)));
  }
  if (!S_ISREG(status.st_mode)) {
    throw IoError(
        fmt::format("{}: not a regular file; give the path of a {}", path.string(), purpose.name));
  }
  if (status.st_size == 0) {
    throw FormatError(fmt::format("{}: the file is empty; {}", path.string(), purpose.if_empty));
  }
  file->size_ = static_cast<size_t>(status.st_size);
  file->map();
  return file;
}

std::shared_ptr<MappedFile> MappedFile::in_memory(std::string name, size_t size, bool huge_pages) {
  if (size == 0) throw InternalError(fmt::format("{}: a file in memory needs a size", name));
  std::shared_ptr<MappedFile> file(new MappedFile());
  file->path_ = std::move(name);
  file->size_ = size;
  try {
    file->memory_ = PageBuffer(size, huge_pages ? PageBuffer::kHugePage : 0);
  } catch (const std::bad_alloc&) {
    throw ResourceExhausted(
        fmt::format("{}: cannot make a file of {} bytes in memory", file->path_.string(), size));
  }
  file->data_ = file->memory_.data();
  return file;
}

void MappedFile::map() {
  void* map = ::mmap(nullptr, size_, PROT_READ, MAP_SHARED, fd_, 0);
  if (map == MAP_FAILED) {
    throw ResourceExhausted(
        fmt::format("{}: cannot map {} bytes: {}; raise the address-space limit", path_.string(),
                    size_, std::strerror(errno)));
  }
  data_ = static_cast<const std::byte*>(map);
  struct stat status {};
  if (::fstat(fd_, &status) != 0) return;
  id_ = {status.st_dev, status.st_ino};
  const std::lock_guard lock(open_files().mutex);
  open_files().ids.insert(id_);
}

MappedFile::~MappedFile() {
  if (data_ != nullptr && !in_memory()) {
    ::munmap(const_cast<std::byte*>(data_), size_);
    const std::lock_guard lock(open_files().mutex);
    if (const auto it = open_files().ids.find(id_); it != open_files().ids.end())
      open_files().ids.erase(it);
  }
  if (fd_ >= 0) ::close(fd_);
}

void MappedFile::check_not_truncated() const {
  if (in_memory()) return;
  struct stat status {};
  if (::fstat(fd_, &status) != 0 || static_cast<uint64_t>(status.st_size) < size_) {
    throw IoError(
        fmt::format("{}: the file shrank from {} to {} bytes while it was in use; do not "
                    "write to a model that is loaded",
                    path_.string(), size_, static_cast<uint64_t>(status.st_size)));
  }
}

void MappedFile::will_need(size_t offset, size_t length) const noexcept {
  if (offset < size_) will_read(bytes().subspan(offset, std::min(length, size_ - offset)));
}

void MappedFile::dont_need(size_t offset, size_t length) const noexcept {
  if (!in_memory()) discard(offset, length);  // memory would lose what it holds
}

void MappedFile::discard(size_t offset, size_t length) const noexcept {
  if (offset >= size_) return;
  // Whole pages only: what shares a page with the range belongs to others.
  give_back({const_cast<std::byte*>(data_) + offset, std::min(length, size_ - offset)});
}

}  // namespace ts
