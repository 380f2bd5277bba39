/// What a model remembers of one sequence: the keys and values of every attention layer and the
/// recurrent state of every gated-delta-rule layer. One object that can be cut back, copied, saved
/// and restored as a whole.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "backend/backend.h"

namespace ts {

/// Positions at which a state may be remembered are multiples of this: there, a sequence that is
/// read again is computed in the same order as the first time, bit for bit.
constexpr int64_t kCheckpointGrid = 64;

/// Everything needed to make a State; fixed per engine.
struct StateLayout {
  /// One per layer; n_kv_heads = 0: the layer keeps no keys and values.
  std::vector<KvShape> attention;
  /// Empty, or one per layer; n_v_heads = 0: the layer has no recurrent state.
  std::vector<RecurrentShape> recurrent;
  KvType kv_type = KvType::kF16;
  /// Most bytes that remembered recurrent states may take.
  uint64_t checkpoint_bytes = 0;

  /// Bytes of `capacity` positions of keys and values, all layers. Saturates at UINT64_MAX.
  uint64_t kv_bytes() const noexcept;
  /// Bytes of the recurrent states, all layers. Saturates at UINT64_MAX.
  uint64_t recurrent_bytes() const noexcept;
  uint64_t bytes() const noexcept;  ///< their sum
  bool has_recurrent() const noexcept;
  /// How many recurrent states of earlier positions can be remembered; 0 without recurrent layers.
  int64_t max_checkpoints() const noexcept;
  int64_t capacity() const noexcept { return attention.empty() ? 0 : attention[0].capacity; }
};

/// Bytes of one cached position of one layer: keys and values.
uint64_t kv_bytes_per_position(const KvShape& shape, KvType type) noexcept;
/// Bytes of one layer's recurrent state: matrices and convolution history. Saturates at UINT64_MAX.
uint64_t recurrent_state_bytes(const RecurrentShape& shape) noexcept;

/// Not thread-safe; one per sequence.
class State {
 public:
  /// ResourceExhausted when the caches cannot be allocated. Memory is committed as positions are
  /// used, not here.
  State(Backend& backend, StateLayout layout);

  int64_t length() const noexcept { return length_; }  ///< positions held
  int64_t capacity() const noexcept { return layout_.capacity(); }
  const StateLayout& layout() const noexcept { return layout_; }
  /// Of an attention layer.
  KvCache& cache(int64_t layer) { return *caches_[static_cast<size_t>(layer)]; }
  /// Of a gated-delta-rule layer.
  RecurrentState& recurrent(int64_t layer) { return *recurrent_[static_cast<size_t>(layer)]; }

  /// The caller has stored positions [length, length + count).
  void advance(int64_t count) { length_ += count; }
  /// Remembers the recurrent states of the present length, so that truncate() can come back to it.
  /// When the byte limit is reached another one is forgotten: those kept lie the denser the nearer
  /// they are to the end. One made with `keep` stays until the next such one. Does nothing without
  /// recurrent layers. InternalError off the grid.
  void checkpoint(bool keep);
  /// A forward pass failed half-way. Keys and values beyond the present length do no harm, but
  /// recurrent states have moved on: a sequence that has any goes back to the last position that is
  /// remembered, or to the beginning.
  void abandon();
  /// Forgets positions from `length` on. InvalidArgument when `length` is negative or beyond the
  /// present length, or when it is a position that recurrent states cannot go back to.
  void truncate(int64_t length);
  /// The last position not after `length` that truncate() can go back to: `length` itself without
  /// recurrent states, else the present length, a remembered one or the beginning.
  int64_t rewind_target(int64_t length) const noexcept;

  /// All positions and remembered states, in a byte layout private to the backend.
  std::vector<std::byte> snapshot() const;
  /// Replaces the contents by `length` positions of a snapshot made with an equal layout.
  /// InvalidArgument when it does not fit.
  void restore(std::span<const std::byte> bytes, int64_t length);
  /// Replaces the contents by those of a state of an equal layout; remembered states are shared.
  void copy_from(const State& other);

 private:
  Backend& backend_;
  StateLayout layout_;
  std::vector<std::unique_ptr<KvCache>> caches_;            // null for other layers
  std::vector<std::unique_ptr<RecurrentState>> recurrent_;  // null for other layers
  /// The recurrent states at an earlier position, one entry per recurrent layer.
  struct Checkpoint {
    int64_t position;
    bool keep;
    std::shared_ptr<const std::vector<std::vector<std::byte>>> states;
  };
  void forget_one_checkpoint();
  void write_recurrent(const std::vector<std::vector<std::byte>>& states);
  std::vector<std::vector<std::byte>> read_recurrent() const;

  std::vector<Checkpoint> checkpoints_;  // ascending positions, none beyond length_
  int64_t length_ = 0;
};

}  // namespace ts
