/// Reproducible random bits: the same on every machine and from any position.
///
/// Method: splitmix64 (Steele, Lea, Flood 2014), the finalizer of a counter.
#pragma once

#include <cstdint>
#include <string_view>

namespace ts {

constexpr uint64_t mix_bits(uint64_t x) noexcept {
  x += 0x9E3779B97F4A7C15ULL;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ULL;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBULL;
  return x ^ (x >> 31);
}

/// A seed of its own for each name.
constexpr uint64_t seed_of(uint64_t seed, std::string_view name) noexcept {
  uint64_t h = mix_bits(seed);
  for (const char c : name)
    h = mix_bits(h ^ static_cast<unsigned char>(c));
  return h;
}

class RandomBits {
 public:
  explicit RandomBits(uint64_t seed) noexcept : state_(seed) {}
  uint64_t next() noexcept { return mix_bits(state_++); }
  /// In [0, 1).
  float uniform() noexcept { return static_cast<float>(next() >> 40) * 0x1p-24F; }

 private:
  uint64_t state_;
};

}  // namespace ts
