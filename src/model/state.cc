#include "model/state.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <limits>
#include <optional>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include <tensorsharp/error.hpp>

#include "base/checked_math.h"

namespace ts {

uint64_t kv_bytes_per_position(const KvShape& shape, KvType type) noexcept {
  const auto n = static_cast<uint64_t>(2 * shape.n_kv_heads * shape.head_dim);
  switch (type) {
    case KvType::kF32:
      return n * 4;
    case KvType::kF16:
      return n * 2;
    case KvType::kQ8:  // int8 and one f32 scale per 32 values of a head
      return n + static_cast<uint64_t>(2 * shape.n_kv_heads * ((shape.head_dim + 31) / 32 * 4));
  }
  return n * 4;
}

uint64_t recurrent_state_bytes(const RecurrentShape& shape) noexcept {
  if (shape.n_v_heads == 0) return 0;
  const auto dim = static_cast<uint64_t>(shape.head_dim);
  const auto square = checked_mul(dim, dim);
  const auto matrices =
      square ? checked_mul(*square, static_cast<uint64_t>(shape.n_v_heads)) : std::nullopt;
  const auto history = checked_mul(static_cast<uint64_t>(shape.conv_kernel - 1),
                                   static_cast<uint64_t>(shape.conv_channels));
  const auto floats = matrices && history ? checked_add(*matrices, *history) : std::nullopt;
  return floats ? checked_mul(*floats, sizeof(float)).value_or(UINT64_MAX) : UINT64_MAX;
}

uint64_t StateLayout::kv_bytes() const noexcept {
  uint64_t total = 0;
  for (const KvShape& shape : attention) {
    const auto layer =
        checked_mul(kv_bytes_per_position(shape, kv_type), static_cast<uint64_t>(shape.capacity));
    const auto sum = layer ? checked_add(total, *layer) : std::nullopt;
    if (!sum) return UINT64_MAX;
    total = *sum;
  }
  return total;
}

uint64_t StateLayout::recurrent_bytes() const noexcept {
  uint64_t total = 0;
  for (const RecurrentShape& shape : recurrent)
    total = checked_add(total, recurrent_state_bytes(shape)).value_or(UINT64_MAX);
  return total;
}

uint64_t StateLayout::bytes() const noexcept {
  return checked_add(kv_bytes(), recurrent_bytes()).value_or(UINT64_MAX);
}

bool StateLayout::has_recurrent() const noexcept {
  return std::any_of(recurrent.begin(), recurrent.end(),
                     [](const RecurrentShape& shape) { return shape.n_v_heads > 0; });
}

State::State(Backend& backend, StateLayout layout) : backend_(backend), layout_(std::move(layout)) {
  for (const KvShape& shape : layout_.attention)
    caches_.push_back(shape.n_kv_heads > 0 ? backend_.make_kv_cache(shape, layout_.kv_type)
                                           : nullptr);
  for (const RecurrentShape& shape : layout_.recurrent)
    recurrent_.push_back(shape.n_v_heads > 0 ? backend_.make_recurrent_state(shape) : nullptr);
}

int64_t StateLayout::max_checkpoints() const noexcept {
  constexpr uint64_t kMost = 64;
  const uint64_t each = recurrent_bytes();
  return each == 0 ? 0 : static_cast<int64_t>(std::min(checkpoint_bytes / each, kMost));
}

int64_t State::rewind_target(int64_t length) const noexcept {
  if (!layout_.has_recurrent() || length >= length_) return std::min(length, length_);
  int64_t target = 0;
  for (const Checkpoint& c : checkpoints_) {
    if (c.position <= length) target = c.position;
  }
  return target;
}

void State::truncate(int64_t length) {
  if (length < 0 || length > length_)
    throw InvalidArgument(
        fmt::format("cannot cut a sequence of {} tokens to {} tokens", length_, length));
  if (rewind_target(length) != length)
    throw InvalidArgument(
        fmt::format("cannot cut a sequence of {} tokens to {} tokens: the model has recurrent "
                    "layers, which can only go back to {}",
                    length_, length, rewind_target(length)));
  if (length == length_) return;
  while (!checkpoints_.empty() && checkpoints_.back().position > length)
    checkpoints_.pop_back();
  if (length == 0) {
    for (const auto& state : recurrent_) {
      if (state) backend_.reset_recurrent(*state);
    }
  } else if (layout_.has_recurrent()) {
    write_recurrent(*checkpoints_.back().states);
  }
  length_ = length;
}

void State::abandon() {
  if (!layout_.has_recurrent()) return;
  if (!checkpoints_.empty()) {
    write_recurrent(*checkpoints_.back().states);
    length_ = checkpoints_.back().position;
    return;
  }
  for (const auto& state : recurrent_) {
    if (state) backend_.reset_recurrent(*state);
  }
  length_ = 0;
}

void State::checkpoint(bool keep) {
  if (layout_.max_checkpoints() == 0 || length_ == 0) return;
  if (length_ % kCheckpointGrid != 0)
    throw InternalError(fmt::format("a state cannot be remembered at position {}", length_));
  if (keep) {
    for (Checkpoint& c : checkpoints_)
      c.keep = false;
  }
  if (!checkpoints_.empty() && checkpoints_.back().position == length_) {
    checkpoints_.back().keep |= keep;
    return;
  }
  checkpoints_.push_back({length_, keep, nullptr});
  // First forget, then copy: the limit holds at every moment.
  while (static_cast<int64_t>(checkpoints_.size()) > layout_.max_checkpoints())
    forget_one_checkpoint();
  if (checkpoints_.back().position == length_)
    checkpoints_.back().states =
        std::make_shared<const std::vector<std::vector<std::byte>>>(read_recurrent());
}

void State::forget_one_checkpoint() {
  // What matters is how much is read again, relative to how far back that is: forget the one that
  // leaves the smallest gap for its distance from the end.
  size_t victim = checkpoints_.size() - 1;
  double least = std::numeric_limits<double>::infinity();
  for (size_t i = 0; i + 1 < checkpoints_.size(); ++i) {
    if (checkpoints_[i].keep) continue;
    const int64_t before = i == 0 ? 0 : checkpoints_[i - 1].position;
    const double gap = static_cast<double>(checkpoints_[i + 1].position - before);
    const double distance = static_cast<double>(length_ - checkpoints_[i].position);
    if (gap / distance < least) {
      least = gap / distance;
      victim = i;
    }
  }
  if (victim + 1 == checkpoints_.size() && checkpoints_[victim].keep) victim = 0;
  checkpoints_.erase(checkpoints_.begin() + static_cast<std::ptrdiff_t>(victim));
}

std::vector<std::vector<std::byte>> State::read_recurrent() const {
  std::vector<std::vector<std::byte>> all;
  for (const auto& state : recurrent_) {
    if (state) all.push_back(backend_.read_recurrent(*state));
  }
  return all;
}

void State::write_recurrent(const std::vector<std::vector<std::byte>>& states) {
  size_t i = 0;
  for (const auto& state : recurrent_) {
    if (state) backend_.write_recurrent(*state, states[i++]);
  }
}

namespace {

template <typename T>
void append_value(std::vector<std::byte>& out, T value) {
  const auto* bytes = reinterpret_cast<const std::byte*>(&value);
  out.insert(out.end(), bytes, bytes + sizeof(T));
}

/// Takes parts from the front of a snapshot; InvalidArgument when it is too short.
class SnapshotReader {
 public:
  explicit SnapshotReader(std::span<const std::byte> bytes) : rest_(bytes) {}
  std::span<const std::byte> take(size_t count) {
    if (count > rest_.size())
      throw InvalidArgument(
          fmt::format("the saved sequence lacks {} bytes; it was made by another model, KV type or "
                      "build",
                      count - rest_.size()));
    const auto part = rest_.first(count);
    rest_ = rest_.subspan(count);
    return part;
  }
  int64_t take_int64() {
    int64_t value = 0;
    std::memcpy(&value, take(sizeof value).data(), sizeof value);
    return value;
  }
  void finish() const {
    if (!rest_.empty())
      throw InvalidArgument(
          fmt::format("the saved sequence has {} bytes too many; it was made by another model, KV "
                      "type or build",
                      rest_.size()));
  }

 private:
  std::span<const std::byte> rest_;
};

/// Whether no element, of `Word`s with an exponent of all ones for NaN and infinity, is one of
/// them.
template <typename Word, Word kExponent>
bool all_finite(std::span<const std::byte> bytes) {
  bool finite = true;
  for (size_t at = 0; at + sizeof(Word) <= bytes.size(); at += sizeof(Word)) {
    Word word = 0;
    std::memcpy(&word, bytes.data() + at, sizeof word);
    finite = finite && (word & kExponent) != kExponent;
  }
  return finite;
}

void require_finite(bool finite, std::string_view what) {
  if (!finite)
    throw InvalidArgument(fmt::format("the saved sequence holds NaN or infinity in {}", what));
}

/// Some kernels turn NaN into ordinary numbers: what comes from outside is checked before its use.
/// (8-bit caches are not: their scales lie as the backend likes.)
void require_finite_kv(std::span<const std::byte> bytes, KvType type) {
  if (type == KvType::kF32)
    require_finite(all_finite<uint32_t, 0x7F800000U>(bytes), "its keys and values");
  if (type == KvType::kF16)
    require_finite(all_finite<uint16_t, 0x7C00U>(bytes), "its keys and values");
}

}  // namespace

// Layout: keys and values of the attention layers; the recurrent states; with recurrent layers, the
// number of remembered states (i64), each as position (i64), keep (i64) and the states.
std::vector<std::byte> State::snapshot() const {
  std::vector<std::byte> all;
  if (length_ == 0) return all;
  const auto add = [&all](const std::vector<std::byte>& part) {
    all.insert(all.end(), part.begin(), part.end());
  };
  for (const auto& cache : caches_) {
    if (cache) add(backend_.read_kv(*cache, 0, length_));
  }
  if (!layout_.has_recurrent()) return all;
  for (const auto& part : read_recurrent())
    add(part);
  append_value(all, static_cast<int64_t>(checkpoints_.size()));
  for (const Checkpoint& c : checkpoints_) {
    append_value(all, c.position);
    append_value(all, static_cast<int64_t>(c.keep));
    for (const auto& part : *c.states)
      add(part);
  }
  return all;
}

void State::restore(std::span<const std::byte> bytes, int64_t length) {
  if (length < 0 || length > capacity())
    throw InvalidArgument(fmt::format("the saved sequence has {} tokens, but the context holds {}",
                                      length, capacity()));
  // Everything is taken apart and checked before anything is replaced. Sizes follow from our own
  // caches and states, whose byte layout is the same.
  SnapshotReader reader(bytes);
  std::vector<std::span<const std::byte>> keys_and_values, states;
  std::vector<Checkpoint> checkpoints;
  if (length > 0) {
    for (const auto& cache : caches_) {
      if (!cache) continue;
      keys_and_values.push_back(
          reader.take(backend_.read_kv(*cache, 0, 1).size() * static_cast<size_t>(length)));
      require_finite_kv(keys_and_values.back(), layout_.kv_type);
    }
    const auto take_states = [&](auto&& sink) {
      for (const auto& state : recurrent_) {
        if (!state) continue;
        const auto part = reader.take(static_cast<size_t>(state->bytes()));
        require_finite(all_finite<uint32_t, 0x7F800000U>(part), "its recurrent state");
        sink(part);
      }
    };
    take_states([&](std::span<const std::byte> part) { states.push_back(part); });
    const int64_t count = layout_.has_recurrent() ? reader.take_int64() : 0;
    int64_t last = 0;
    for (int64_t i = 0; i < count; ++i) {
      const int64_t position = reader.take_int64();
      const bool keep = reader.take_int64() != 0;
      if (position <= last || position > length || position % kCheckpointGrid != 0)
        throw InvalidArgument(fmt::format(
            "the saved sequence remembers a state at position {}, which cannot be", position));
      last = position;
      std::vector<std::vector<std::byte>> parts;
      take_states(
          [&](std::span<const std::byte> part) { parts.emplace_back(part.begin(), part.end()); });
      checkpoints.push_back(
          {position, keep,
           std::make_shared<const std::vector<std::vector<std::byte>>>(std::move(parts))});
    }
  }
  reader.finish();
  truncate(0);
  size_t i = 0;
  for (const auto& cache : caches_) {
    if (cache && length > 0) backend_.write_kv(*cache, 0, keys_and_values[i++]);
  }
  i = 0;
  for (const auto& state : recurrent_) {
    if (state && length > 0) backend_.write_recurrent(*state, states[i++]);
  }
  length_ = length;
  checkpoints_ = std::move(checkpoints);
  while (static_cast<int64_t>(checkpoints_.size()) > layout_.max_checkpoints())
    forget_one_checkpoint();
}

void State::copy_from(const State& other) {
  truncate(0);
  for (size_t i = 0; i < caches_.size() && other.length_ > 0; ++i) {
    if (caches_[i])
      backend_.write_kv(*caches_[i], 0, backend_.read_kv(*other.caches_[i], 0, other.length_));
  }
  if (other.length_ > 0) write_recurrent(other.read_recurrent());
  checkpoints_ = other.checkpoints_;
  length_ = other.length_;
}

}  // namespace ts
