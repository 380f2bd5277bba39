#include "backend/cpu/rope_tables.h"

#include <algorithm>
#include <cmath>

namespace ts {

RopeTables::View RopeTables::get(const Rope& rope, int64_t first, int64_t count) {
  const size_t n_pairs = rope.inverse_frequency.size();
  auto entry = std::find_if(entries_.begin(), entries_.end(), [&](const Entry& e) {
    return e.scale == rope.scale && e.inverse_frequency == rope.inverse_frequency;
  });
  if (entry == entries_.end()) {
    // A model has one or two kinds; more come only from several models on one backend.
    constexpr size_t kMaxEntries = 16;
    if (entries_.size() == kMaxEntries) entries_.erase(entries_.begin());
    entries_.push_back({rope.inverse_frequency, rope.scale, 0, 0, {}, {}});
    entry = std::prev(entries_.end());
  }
  if (first < entry->first || first + count > entry->first + entry->count) {
    // Single tokens come with rising positions: prepare the next ones too.
    constexpr int64_t kAhead = 64;
    entry->count = 0;  // nothing is valid if an allocation below throws
    const int64_t n = std::max(count, kAhead);
    entry->cos.resize(static_cast<size_t>(n) * n_pairs);
    entry->sin.resize(static_cast<size_t>(n) * n_pairs);
    for (int64_t p = 0; p < n; ++p) {
      for (size_t j = 0; j < n_pairs; ++j) {
        const double angle = static_cast<double>(first + p) * rope.inverse_frequency[j];
        const size_t at = static_cast<size_t>(p) * n_pairs + j;
        entry->cos[at] = static_cast<float>(std::cos(angle) * static_cast<double>(rope.scale));
        entry->sin[at] = static_cast<float>(std::sin(angle) * static_cast<double>(rope.scale));
      }
    }
    entry->first = first;
    entry->count = n;
  }
  const size_t at = static_cast<size_t>(first - entry->first) * n_pairs;
  return {entry->cos.data() + at, entry->sin.data() + at, n_pairs};
}

}  // namespace ts
