/// Remembers the ids of short pieces. Thread-safe; bounded.
#pragma once

#include <array>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "text/tokenizer.h"

namespace ts {

class PieceCache {
 public:
  /// Longer pieces are rarely seen twice.
  static constexpr size_t kMaxPieceBytes = 64;

  /// Appends the ids of `piece` if it is known.
  bool find(std::string_view piece, std::vector<TokenId>& ids) const {
    const Shard& shard = shard_of(piece);
    const std::lock_guard lock(shard.mutex);
    const auto it = shard.ids.find(piece);
    if (it == shard.ids.end()) return false;
    ids.insert(ids.end(), it->second.begin(), it->second.end());
    return true;
  }

  void insert(std::string_view piece, const TokenId* begin, const TokenId* end) {
    Shard& shard = shard_of(piece);
    const std::lock_guard lock(shard.mutex);
    if (shard.ids.size() >= kMaxPiecesPerShard) shard.ids.clear();
    shard.ids.try_emplace(std::string(piece), begin, end);
  }

 private:
  static constexpr size_t kShards = 16;
  static constexpr size_t kMaxPiecesPerShard = 4096;
  struct Hash {
    using is_transparent = void;
    size_t operator()(std::string_view s) const noexcept {
      return std::hash<std::string_view>{}(s);
    }
  };
  struct Shard {
    mutable std::mutex mutex;
    std::unordered_map<std::string, std::vector<TokenId>, Hash, std::equal_to<>> ids;
  };
  size_t index(std::string_view piece) const noexcept {
    return (Hash{}(piece) >> 20) % kShards;  // other bits than the map's
  }
  const Shard& shard_of(std::string_view piece) const noexcept { return shards_[index(piece)]; }
  Shard& shard_of(std::string_view piece) noexcept { return shards_[index(piece)]; }
  std::array<Shard, kShards> shards_;
};

}  // namespace ts
