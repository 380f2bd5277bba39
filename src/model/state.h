/// What a model remembers of one sequence: the keys and values of every attention layer.
/// One object that can be cut back, copied, saved and restored as a whole.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "backend/backend.h"

namespace ts {

/// Everything needed to make a State; fixed per engine.
struct StateLayout {
  std::vector<KvShape> attention;  ///< one per layer
  KvType kv_type = KvType::kF16;

  /// Bytes of `capacity` positions, all layers. Saturates at UINT64_MAX.
  uint64_t bytes() const noexcept;
  int64_t capacity() const noexcept { return attention.empty() ? 0 : attention[0].capacity; }
};

/// Bytes of one cached position of one layer: keys and values.
uint64_t kv_bytes_per_position(const KvShape& shape, KvType type) noexcept;

/// Not thread-safe; one per sequence.
class State {
 public:
  /// ResourceExhausted when the caches cannot be allocated. Memory is committed as positions are
  /// used, not here.
  State(Backend& backend, StateLayout layout);

  int64_t length() const noexcept { return length_; }  ///< positions held
  int64_t capacity() const noexcept { return layout_.capacity(); }
  const StateLayout& layout() const noexcept { return layout_; }
  KvCache& cache(int64_t layer) { return *caches_[static_cast<size_t>(layer)]; }

  /// The caller has stored positions [length, length + count).
  void advance(int64_t count) { length_ += count; }
  /// Forgets positions from `length` on. InvalidArgument when `length` is negative or beyond the
  /// present length.
  void truncate(int64_t length);

  /// All positions, in a byte layout private to the backend.
  std::vector<std::byte> snapshot() const;
  /// Replaces the contents by `length` positions of a snapshot made with an equal layout.
  /// InvalidArgument when the size does not fit.
  void restore(std::span<const std::byte> bytes, int64_t length);
  /// An independent copy.
  std::unique_ptr<State> fork() const;

 private:
  Backend& backend_;
  StateLayout layout_;
  std::vector<std::unique_ptr<KvCache>> caches_;
  int64_t length_ = 0;
};

}  // namespace ts
