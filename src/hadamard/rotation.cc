#include "hadamard/rotation.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstring>

#include <fmt/format.h>

#include <tensorsharp/error.hpp>

#include "hadamard/transform.h"

namespace ts {
namespace {

constexpr uint32_t kMinus = 0x80000000u;

uint64_t next_id() noexcept {
  static std::atomic<uint64_t> last{0};
  return last.fetch_add(1, std::memory_order_relaxed) + 1;
}

/// Where the elements of grouped head `slot` are in tiled order.
size_t tiled_head(const GroupedHeads& heads, size_t slot) noexcept {
  const auto repeats = static_cast<size_t>(heads.repeats);
  return slot % repeats * static_cast<size_t>(heads.n_key_heads) + slot / repeats;
}

}  // namespace

Rotation::Rotation(int64_t width, int64_t block, std::span<const int8_t> signs,
                   std::optional<GroupedHeads> grouped)
    : width_(width), block_(block), factor_(0), id_(next_id()), grouped_(grouped) {
  require_block(width, block, "rotation");
  factor_ = transform_factor(block);
  if (!signs.empty()) {
    if (static_cast<int64_t>(signs.size()) != width)
      throw InvalidArgument(
          fmt::format("rotation: {} signs for a width of {}", signs.size(), width));
    flips_.reserve(signs.size());
    for (const int8_t sign : signs) {
      if (sign != 1 && sign != -1)
        throw InvalidArgument(fmt::format("rotation: a sign is {}, expected +1 or -1", sign));
      flips_.push_back(sign < 0 ? kMinus : 0);
    }
  }
  if (grouped_ &&
      (grouped_->n_key_heads < 1 || grouped_->repeats < 1 || grouped_->head_dim < 1 ||
       grouped_->n_key_heads > width || grouped_->repeats > width / grouped_->n_key_heads ||
       grouped_->head_dim > width || grouped_->width() != width))
    throw InvalidArgument(fmt::format("rotation: {} x {} heads of {} elements for a width of {}",
                                      grouped_->n_key_heads, grouped_->repeats, grouped_->head_dim,
                                      width));
}

void Rotation::gather(const float* x, size_t begin, size_t count, float* y) const noexcept {
  if (!grouped_) {
    std::memcpy(y, x + begin, count * sizeof(float));
    return;
  }
  const auto head_dim = static_cast<size_t>(grouped_->head_dim);
  for (size_t i = begin; i < begin + count;) {
    const size_t within = i % head_dim;
    const size_t n = std::min(head_dim - within, begin + count - i);
    std::memcpy(y, x + tiled_head(*grouped_, i / head_dim) * head_dim + within, n * sizeof(float));
    y += n;
    i += n;
  }
}

void Rotation::forward(const float* x, float* y) const noexcept {
  const auto n = static_cast<size_t>(width_);
  gather(x, 0, n, y);
  for (size_t i = 0; i < flips_.size(); ++i)
    y[i] = std::bit_cast<float>(std::bit_cast<uint32_t>(y[i]) ^ flips_[i]);
  transform_blocks(y, n, static_cast<size_t>(block_));
}

void Rotation::inverse(const float* x, float* y) const noexcept {
  const auto n = static_cast<size_t>(width_);
  if (x != y) std::memcpy(y, x, n * sizeof(float));
  transform_blocks(y, n, static_cast<size_t>(block_));
  for (size_t i = 0; i < flips_.size(); ++i)
    y[i] = std::bit_cast<float>(std::bit_cast<uint32_t>(y[i]) ^ flips_[i]);
}

void Rotation::fold_row(std::span<double> row) const {
  if (static_cast<int64_t>(row.size()) != width_)
    throw InvalidArgument(
        fmt::format("rotation: a row of {} elements, expected {}", row.size(), width_));
  if (grouped_) {
    const std::vector<double> tiled(row.begin(), row.end());
    const auto head_dim = static_cast<size_t>(grouped_->head_dim);
    for (size_t i = 0; i < row.size(); ++i)
      row[i] = tiled[tiled_head(*grouped_, i / head_dim) * head_dim + i % head_dim];
  }
  for (size_t i = 0; i < flips_.size(); ++i) {
    if (flips_[i] != 0) row[i] = -row[i];
  }
  transform_blocks(row.data(), row.size(), static_cast<size_t>(block_));
}

}  // namespace ts
