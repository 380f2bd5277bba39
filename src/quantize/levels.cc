#include "quantize/levels.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>

namespace ts {

void Levels::set(const float* scales, int n_planes) noexcept {
  int total = 1;
  for (int p = 0; p < n_planes; ++p)
    total *= 3;
  n_all_ = 0;
  // Of every pair of opposite code tuples the one after the middle (the zero tuple) is listed.
  for (int number = total / 2; number < total; ++number) {
    Level level{};
    int rest = number;
    for (int p = n_planes - 1; p >= 0; --p, rest /= 3) {
      level.code[p] = static_cast<int8_t>(rest % 3 - 1);
      level.state = static_cast<uint8_t>(level.state | (level.code[p] != 0 ? 1 << p : 0));
    }
    for (int p = 0; p < n_planes; ++p)
      level.value += static_cast<float>(level.code[p]) * scales[p];
    if (level.value < 0) {
      level.value = -level.value;
      for (int8_t& code : level.code)
        code = static_cast<int8_t>(-code);
    }
    all_[n_all_++] = level;
  }
  std::copy_n(all_, n_all_, distinct_);
  std::sort(distinct_, distinct_ + n_all_, [](const Level& a, const Level& b) {
    if (a.value != b.value) return a.value < b.value;
    return std::popcount(a.state) < std::popcount(b.state);
  });
  n_distinct_ = static_cast<int>(
      std::unique(distinct_, distinct_ + n_all_,
                  [](const Level& a, const Level& b) { return a.value == b.value; }) -
      distinct_);
  for (int k = 0; k + 1 < n_distinct_; ++k)
    middle_[k] = 0.5F * (distinct_[k].value + distinct_[k + 1].value);
}

BlockOfFour::BlockOfFour(const Sparsity& sparsity, int n_planes) noexcept : n_planes_(n_planes) {
  for (unsigned support = 0; support < 16; ++support) {
    const int count = std::popcount(support);
    if (count >= sparsity.min_nonzero && count <= sparsity.max_nonzero)
      supports_[n_supports_++] = static_cast<uint8_t>(support);
  }
}

void BlockOfFour::choose(const float* w, const float* h, const Levels& levels,
                         uint8_t* states) const noexcept {
  // The cost of a position depends only on its state, so tuples of supports can be compared by
  // four table look-ups.
  std::array<std::array<float, kMaxStates>, 4> cost;
  for (int i = 0; i < 4; ++i) {
    cost[i].fill(std::numeric_limits<float>::infinity());
    const float magnitude = std::fabs(w[i]);
    for (int k = 0; k < levels.n_all(); ++k) {
      const Level& level = levels.all(k);
      const float distance = magnitude - level.value;
      const float c = (h ? h[i] : 1.0F) * distance * distance;
      cost[i][level.state] = std::min(cost[i][level.state], c);
    }
  }
  float best = std::numeric_limits<float>::infinity();
  std::fill_n(states, 4, uint8_t{0});
  const int n1 = n_planes_ > 1 ? n_supports_ : 1;
  const int n2 = n_planes_ > 2 ? n_supports_ : 1;
  for (int a = 0; a < n_supports_; ++a) {
    for (int b = 0; b < n1; ++b) {
      for (int c = 0; c < n2; ++c) {
        float sum = 0;
        std::array<uint8_t, 4> state;
        for (int i = 0; i < 4; ++i) {
          unsigned s = supports_[a] >> i & 1u;
          if (n_planes_ > 1) s |= (supports_[b] >> i & 1u) << 1;
          if (n_planes_ > 2) s |= (supports_[c] >> i & 1u) << 2;
          state[i] = static_cast<uint8_t>(s);
          sum += cost[i][s];
        }
        if (sum < best) {
          best = sum;
          std::copy(state.begin(), state.end(), states);
        }
      }
    }
  }
}

}  // namespace ts
