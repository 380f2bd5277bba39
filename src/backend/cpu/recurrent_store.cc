#include "backend/cpu/recurrent_store.h"

#include <cstring>
#include <initializer_list>
#include <new>

#include <fmt/format.h>

#include <tensorsharp/error.hpp>

#include "backend/cpu/checks.h"
#include "backend/cpu/cpu_backend_impl.h"
#include "base/checked_math.h"

namespace ts {
namespace {

size_t multiply(std::initializer_list<int64_t> factors) {
  uint64_t product = 1;
  for (const int64_t f : factors) {
    const auto next = checked_mul(product, static_cast<uint64_t>(f));
    if (!next || *next > SIZE_MAX / 16) throw std::bad_alloc();
    product = *next;
  }
  return static_cast<size_t>(product);
}

}  // namespace

CpuRecurrentState::CpuRecurrentState(const RecurrentShape& shape, bool huge_pages) : shape_(shape) {
  constexpr int64_t kWidth = kDeltaWidth;
  n_blocks_ = (shape.head_dim + kWidth - 1) / kWidth;
  matrix_floats_ = multiply({shape.n_v_heads, n_blocks_, shape.head_dim, kWidth});
  n_floats_ = matrix_floats_ + multiply({shape.conv_kernel - 1, shape.conv_channels});
  // A state that is never used costs nothing.
  pages_ = PageBuffer(n_floats_ * sizeof(float), huge_pages ? PageBuffer::kHugePage : 0);
}

void CpuRecurrentState::clear() {
  pages_.clear();
}

std::unique_ptr<RecurrentState> CpuBackend::make_recurrent_state(const RecurrentShape& shape) {
  check_argument(
      shape.n_k_heads >= 1 && shape.n_v_heads >= 1 && shape.head_dim >= 1 && shape.conv_kernel >= 1,
      "recurrent state: heads, head size and taps must be positive");
  check_argument(shape.n_v_heads % shape.n_k_heads == 0,
                 "recurrent state: the key heads do not divide the value heads");
  check_argument(
      shape.n_k_heads < (int64_t{1} << 30) && shape.n_v_heads < (int64_t{1} << 30) &&
          shape.head_dim < (int64_t{1} << 30) &&
          shape.conv_channels == (2 * shape.n_k_heads + shape.n_v_heads) * shape.head_dim,
      "recurrent state: the channels are not those of queries, keys and values");
  try {
    return std::make_unique<CpuRecurrentState>(shape, huge_pages_);
  } catch (const std::bad_alloc&) {
    throw ResourceExhausted(
        fmt::format("not enough memory for a recurrent state of {} heads of {} x {}",
                    shape.n_v_heads, shape.head_dim, shape.head_dim));
  }
}

std::vector<std::byte> CpuBackend::read_recurrent(const RecurrentState& state) {
  const CpuRecurrentState& own = cpu_recurrent_state(state);
  const std::lock_guard lock(mutex_);
  const auto* begin = reinterpret_cast<const std::byte*>(own.data());
  return {begin, begin + own.bytes()};
}

void CpuBackend::write_recurrent(RecurrentState& state, std::span<const std::byte> bytes) {
  CpuRecurrentState& own = cpu_recurrent_state(state);
  if (bytes.size() != own.bytes())
    throw InvalidArgument(
        fmt::format("a recurrent state of {} bytes was given {} bytes", own.bytes(), bytes.size()));
  const std::lock_guard lock(mutex_);
  std::memcpy(own.data(), bytes.data(), bytes.size());
}

void CpuBackend::reset_recurrent(RecurrentState& state) {
  CpuRecurrentState& own = cpu_recurrent_state(state);
  const std::lock_guard lock(mutex_);
  own.clear();
}

}  // namespace ts
