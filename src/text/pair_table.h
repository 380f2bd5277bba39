/// A hash table from pairs of symbols to merges: open addressing, filled once, then only read.
#pragma once

#include <bit>
#include <cstdint>
#include <vector>

namespace ts {

struct Merge {
  uint32_t rank = 0;
  int32_t result = 0;  ///< symbol that replaces the pair
};

class PairTable {
 public:
  explicit PairTable(size_t n_pairs = 0)
      : slots_(std::bit_ceil(n_pairs * 2 + 2)), mask_(slots_.size() - 1) {}

  /// Keeps the first merge of a pair. At most the promised number of pairs.
  void insert(int32_t left, int32_t right, Merge merge) {
    const uint64_t key = make_key(left, right);
    size_t i = start(key);
    while (slots_[i].key != kEmpty) {
      if (slots_[i].key == key) return;
      i = (i + 1) & mask_;
    }
    slots_[i] = {key, merge};
  }

  const Merge* find(int32_t left, int32_t right) const noexcept {
    const uint64_t key = make_key(left, right);
    for (size_t i = start(key); slots_[i].key != kEmpty; i = (i + 1) & mask_) {
      if (slots_[i].key == key) return &slots_[i].merge;
    }
    return nullptr;
  }

 private:
  static constexpr uint64_t kEmpty = ~uint64_t{0};  // no symbol is negative
  struct Slot {
    uint64_t key = kEmpty;
    Merge merge;
  };
  static uint64_t make_key(int32_t left, int32_t right) noexcept {
    return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
  }
  size_t start(uint64_t key) const noexcept {
    key *= 0x9E3779B97F4A7C15u;  // 2^64 divided by the golden ratio (Knuth, TAOCP 3, 6.4)
    return static_cast<size_t>(key ^ (key >> 32)) & mask_;
  }
  std::vector<Slot> slots_;
  size_t mask_;
};

}  // namespace ts
