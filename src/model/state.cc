#include "model/state.h"

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

uint64_t StateLayout::bytes() const noexcept {
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

State::State(Backend& backend, StateLayout layout) : backend_(backend), layout_(std::move(layout)) {
  for (const KvShape& shape : layout_.attention)
    caches_.push_back(backend_.make_kv_cache(shape, layout_.kv_type));
}

void State::truncate(int64_t length) {
  if (length < 0 || length > length_)
    throw InvalidArgument(
        fmt::format("cannot cut a sequence of {} tokens to {} tokens", length_, length));
  length_ = length;
}

std::vector<std::byte> State::snapshot() const {
  std::vector<std::byte> all;
  for (const auto& cache : caches_) {
    const auto part = backend_.read_kv(*cache, 0, length_);
    all.insert(all.end(), part.begin(), part.end());
  }
  return all;
}

void State::restore(std::span<const std::byte> bytes, int64_t length) {
  if (length < 0 || length > capacity())
    throw InvalidArgument(fmt::format("the saved sequence has {} tokens, but the context holds {}",
                                      length, capacity()));
  // Sizes per layer follow from an empty-to-length read of our own caches, whose layout is the
  // same; all layers of one shape are equal, so each is asked once.
  std::vector<size_t> sizes;
  size_t total = 0;
  for (const auto& cache : caches_) {
    sizes.push_back(
        length == 0 ? 0 : backend_.read_kv(*cache, 0, 1).size() * static_cast<size_t>(length));
    total += sizes.back();
  }
  if (total != bytes.size())
    throw InvalidArgument(
        fmt::format("the saved sequence has {} bytes, expected {}; it was made by another model, "
                    "KV type or build",
                    bytes.size(), total));
  size_t offset = 0;
  for (size_t i = 0; i < caches_.size(); ++i) {
    if (sizes[i] > 0) backend_.write_kv(*caches_[i], 0, bytes.subspan(offset, sizes[i]));
    offset += sizes[i];
  }
  length_ = length;
}

std::unique_ptr<State> State::fork() const {
  auto copy = std::make_unique<State>(backend_, layout_);
  for (size_t i = 0; i < caches_.size() && length_ > 0; ++i)
    backend_.write_kv(*copy->caches_[i], 0, backend_.read_kv(*caches_[i], 0, length_));
  copy->length_ = length_;
  return copy;
}

}  // namespace ts
