#include "model/rope_config.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <string>

#include <fmt/format.h>

#include <tensorsharp/error.hpp>

#include "model/config.h"

namespace ts {
namespace {

constexpr double kMaxFactor = 1e6;

/// Pair index whose wavelength fits `rotations` times into the original context.
double correction_index(const RopeParams& p, double rotations) {
  return static_cast<double>(p.n_rot) *
         std::log(static_cast<double>(p.original_context) / (rotations * 2.0 * std::numbers::pi)) /
         (2.0 * std::log(p.base));
}

}  // namespace

RopeParams read_rope_params(const ConfigReader& reader, int64_t head_dim, int64_t context_length) {
  RopeParams p;
  p.n_rot = reader.int_or("rope.dimension_count", head_dim, 2, head_dim);
  if (p.n_rot % 2 != 0)
    reader.fail("rope.dimension_count", fmt::format("found {}, expected an even number", p.n_rot));
  // A base of 1 or less would make the logarithm of the YaRN range zero or negative.
  p.base = reader.float_or("rope.freq_base", 10000.0, 1.0 + 1e-6, 1e15);
  p.factor = reader.float_or("rope.scaling.factor", 0.0, 0.0, kMaxFactor);
  if (p.factor == 0.0) p.factor = reader.float_or("rope.scale_linear", 0.0, 0.0, kMaxFactor);
  const bool has_factor = p.factor != 0.0;
  if (!has_factor) p.factor = 1.0;
  // Files with a factor and no type come from the time when linear scaling was the only one.
  const std::string type = reader.string_or("rope.scaling.type", has_factor ? "linear" : "none");
  if (type == "none" || type.empty()) {
    p.factor = 1.0;
  } else if (type == "linear" || type == "yarn") {
    p.scaling = type == "linear" ? RopeScaling::kLinear : RopeScaling::kYarn;
    if (!has_factor)
      reader.fail("rope.scaling.factor", fmt::format("absent, but scaling type {} needs it", type));
  } else {
    throw Unsupported(
        fmt::format("{}: {}: rope scaling \"{}\" is not supported; known are none, linear, yarn",
                    reader.metadata().source(), reader.key("rope.scaling.type"), type));
  }
  if (p.scaling == RopeScaling::kYarn) {
    p.original_context =
        reader.int_or("rope.scaling.original_context_length", context_length, 1, int64_t{1} << 40);
    p.beta_fast = reader.float_or("rope.scaling.yarn_beta_fast", 32.0, 1e-6, 1e6);
    p.beta_slow = reader.float_or("rope.scaling.yarn_beta_slow", 1.0, 1e-6, 1e6);
    p.attn_factor = reader.float_or("rope.scaling.attn_factor", 1.0, 1e-6, 1e6);
  }
  return p;
}

Rope make_rope(const RopeParams& p, std::span<const float> freq_factors) {
  Rope rope;
  rope.half_split = p.half_split;
  const int64_t n_pairs = p.n_rot / 2;
  double low = 0, high = 0;
  if (p.scaling == RopeScaling::kYarn) {
    low = std::max(0.0, std::floor(correction_index(p, p.beta_fast)));
    high = std::min(static_cast<double>(p.n_rot - 1), std::ceil(correction_index(p, p.beta_slow)));
    rope.scale = static_cast<float>((1.0 + 0.1 * std::log(p.factor)) * p.attn_factor);
  }
  for (int64_t j = 0; j < n_pairs; ++j) {
    double f = std::pow(p.base, -2.0 * static_cast<double>(j) / static_cast<double>(p.n_rot));
    if (!freq_factors.empty()) f /= static_cast<double>(freq_factors[static_cast<size_t>(j)]);
    if (p.scaling == RopeScaling::kLinear) {
      f /= p.factor;
    } else if (p.scaling == RopeScaling::kYarn) {
      const double position = (static_cast<double>(j) - low) / std::max(0.001, high - low);
      const double ramp = 1.0 - std::clamp(position, 0.0, 1.0);  // 1 = keep the frequency
      f = f / p.factor * (1.0 - ramp) + f * ramp;
    }
    rope.inverse_frequency.push_back(f);
  }
  return rope;
}

}  // namespace ts
