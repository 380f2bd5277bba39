/// n independent standard normal values, the same for each seed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

namespace ts {

inline std::vector<float> gaussian(int64_t n, unsigned seed) {
  std::mt19937_64 engine(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<size_t>(n));
  for (float& v : values)
    v = normal(engine);
  return values;
}

}  // namespace ts
