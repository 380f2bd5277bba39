/// Memory for repacked weights.
///
/// One after the other in large pieces: a piece of its own for each matrix would leave the end of
/// every matrix in ordinary pages, or waste a part of a huge one.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>

#include "base/page_buffer.h"

namespace ts {

/// Thread-safe.
class TileArena {
 public:
  explicit TileArena(bool huge_pages) : huge_pages_(huge_pages) {}
  /// Untouched zeros on a 64-byte boundary. Pages return to the system with the object that lies in
  /// them, whatever else the piece holds. Throws std::bad_alloc.
  std::shared_ptr<std::byte> allocate(size_t bytes);

 private:
  const bool huge_pages_;
  std::mutex mutex_;
  std::shared_ptr<PageBuffer> piece_;
  size_t used_ = 0;
  size_t total_ = 0;  ///< of all pieces so far
};

}  // namespace ts
