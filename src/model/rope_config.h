/// Rotary position embedding: frequencies from a model's hyper-parameters.
///
/// Pair j of n_rot / 2 turns by angle(pos, j) = pos * f_j with f_j = base^(-2j / n_rot), divided by
/// the file's frequency factor of j where there is one. Then
///   linear scaling by `factor`: f_j / factor;
///   YaRN (Peng et al. 2023, "YaRN: Efficient Context Window Extension of Large Language Models"):
///   a blend of f_j / factor and f_j between two pair indices, and cos and sin multiplied by
///   (1 + 0.1 ln factor) * attn_factor.
#pragma once

#include <cstdint>
#include <span>

#include "backend/backend.h"

namespace ts {

class ConfigReader;

enum class RopeScaling { kNone, kLinear, kYarn };

struct RopeParams {
  int64_t n_rot = 0;  ///< rotated elements per head, even
  double base = 10000.0;
  bool half_split = false;  ///< pairs (j, j + n_rot/2) instead of (2j, 2j + 1)
  RopeScaling scaling = RopeScaling::kNone;
  double factor = 1.0;
  int64_t original_context = 0;  ///< YaRN only
  double beta_fast = 32.0, beta_slow = 1.0, attn_factor = 1.0;
};

/// Reads rope.dimension_count, rope.freq_base and rope.scaling.*; the caller sets half_split.
/// Unsupported: a scaling type other than none, linear and yarn.
RopeParams read_rope_params(const ConfigReader& reader, int64_t head_dim, int64_t context_length);

/// `freq_factors`: n_rot / 2 divisors, or empty.
Rope make_rope(const RopeParams& params, std::span<const float> freq_factors = {});

}  // namespace ts
