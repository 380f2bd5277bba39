/// Overflow-safe arithmetic on sizes that come from files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>

namespace ts {

/// a * b, or nothing when it does not fit.
constexpr std::optional<uint64_t> checked_mul(uint64_t a, uint64_t b) noexcept {
  uint64_t r = 0;
  if (__builtin_mul_overflow(a, b, &r)) return std::nullopt;
  return r;
}

/// a + b, or nothing when it does not fit.
constexpr std::optional<uint64_t> checked_add(uint64_t a, uint64_t b) noexcept {
  uint64_t r = 0;
  if (__builtin_add_overflow(a, b, &r)) return std::nullopt;
  return r;
}

/// value rounded up to a multiple of `alignment` (> 0), or nothing when it does not fit.
constexpr std::optional<uint64_t> checked_round_up(uint64_t value, uint64_t alignment) noexcept {
  const uint64_t rest = value % alignment;
  return rest == 0 ? std::optional<uint64_t>(value) : checked_add(value, alignment - rest);
}

}  // namespace ts
