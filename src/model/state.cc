#include "model/state.h"

#include <algorithm>
#include <optional>
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

int64_t State::rewind_target(int64_t length) const noexcept {
  if (!layout_.has_recurrent() || length >= length_) return std::min(length, length_);
  return 0;
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
  if (length == 0) {
    for (const auto& state : recurrent_) {
      if (state) backend_.reset_recurrent(*state);
    }
  }
  length_ = length;
}

void State::abandon() {
  if (layout_.has_recurrent()) truncate(0);
}

std::vector<std::byte> State::snapshot() const {
  std::vector<std::byte> all;
  if (length_ == 0) return all;
  for (const auto& cache : caches_) {
    if (!cache) continue;
    const auto part = backend_.read_kv(*cache, 0, length_);
    all.insert(all.end(), part.begin(), part.end());
  }
  for (const auto& state : recurrent_) {
    if (!state) continue;
    const auto part = backend_.read_recurrent(*state);
    all.insert(all.end(), part.begin(), part.end());
  }
  return all;
}

void State::restore(std::span<const std::byte> bytes, int64_t length) {
  if (length < 0 || length > capacity())
    throw InvalidArgument(fmt::format("the saved sequence has {} tokens, but the context holds {}",
                                      length, capacity()));
  // Sizes follow from our own caches and states, whose byte layout is the same.
  std::vector<size_t> sizes;
  size_t total = 0;
  if (length > 0) {
    for (const auto& cache : caches_) {
      if (!cache) continue;
      sizes.push_back(backend_.read_kv(*cache, 0, 1).size() * static_cast<size_t>(length));
      total += sizes.back();
    }
    for (const auto& state : recurrent_)
      total += state ? static_cast<size_t>(state->bytes()) : 0;
  }
  if (total != bytes.size())
    throw InvalidArgument(
        fmt::format("the saved sequence has {} bytes, expected {}; it was made by another model, "
                    "KV type or build",
                    bytes.size(), total));
  truncate(0);
  if (length == 0) return;
  size_t offset = 0;
  size_t i = 0;
  for (const auto& cache : caches_) {
    if (!cache) continue;
    backend_.write_kv(*cache, 0, bytes.subspan(offset, sizes[i]));
    offset += sizes[i++];
  }
  for (const auto& state : recurrent_) {
    if (!state) continue;
    const auto size = static_cast<size_t>(state->bytes());
    backend_.write_recurrent(*state, bytes.subspan(offset, size));
    offset += size;
  }
  length_ = length;
}

std::unique_ptr<State> State::fork() const {
  auto copy = std::make_unique<State>(backend_, layout_);
  for (size_t i = 0; i < caches_.size() && length_ > 0; ++i) {
    if (caches_[i])
      backend_.write_kv(*copy->caches_[i], 0, backend_.read_kv(*caches_[i], 0, length_));
  }
  for (size_t i = 0; i < recurrent_.size() && length_ > 0; ++i) {
    if (recurrent_[i])
      backend_.write_recurrent(*copy->recurrent_[i], backend_.read_recurrent(*recurrent_[i]));
  }
  copy->length_ = length_;
  return copy;
}

}  // namespace ts
