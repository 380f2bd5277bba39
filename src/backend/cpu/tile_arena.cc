#include "backend/cpu/tile_arena.h"

#include <algorithm>
#include <new>

namespace ts {

std::shared_ptr<std::byte> TileArena::allocate(size_t bytes) {
  constexpr size_t kAlignment = 64, kSmallest = size_t{32} << 20, kLargest = size_t{1} << 30;
  if (bytes > static_cast<size_t>(PTRDIFF_MAX) - PageBuffer::kHugePage) throw std::bad_alloc();
  const std::lock_guard lock(mutex_);
  if (!piece_ || bytes > piece_->size() - used_) {
    // What a piece does not hold is address space only. They grow with the model.
    const size_t wanted = std::max(bytes, std::clamp(total_, kSmallest, kLargest));
    const size_t size = (wanted + PageBuffer::kHugePage - 1) / PageBuffer::kHugePage;
    piece_ = std::make_shared<PageBuffer>(size * PageBuffer::kHugePage,
                                          huge_pages_ ? PageBuffer::kHugePage : 0);
    used_ = 0;
    total_ += piece_->size();
  }
  std::byte* begin = piece_->data() + used_;
  used_ = std::min((used_ + bytes + kAlignment - 1) / kAlignment * kAlignment, piece_->size());
  return {begin, [piece = piece_, bytes](std::byte* data) { give_back({data, bytes}); }};
}

}  // namespace ts
