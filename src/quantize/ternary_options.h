/// What a ternary fit is asked to do. Every rule is defined in docs/quantize-methods.md.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace ts {

enum class TernaryMethod : uint8_t {
  kAbsmean,   ///< scale = mean |w| of the group, zero below half of it
  kFixed,     ///< zero up to threshold x standard deviation of the group (preset 0.5)
  kQuantile,  ///< zero up to that quantile of |w| in the group (preset 0.38)
  kTopk,      ///< this share of the group is kept nonzero (preset 0.54)
  kL1,        ///< least absolute error with a penalty on the threshold (preset weight 0.001)
  kMse,       ///< least squared error, exact; weighted by the diagonal of a metric if there is one
  kGptq,      ///< error feedback under a metric, then coordinate descent and refit of the scales
};

/// How several planes share the work.
enum class PlaneFit : uint8_t {
  kProgressive,  ///< fitted together, first scale more than twice the second: planes can be
                 ///< loaded one by one
  kGreedy,       ///< each plane is the complete fit of what the planes before it left over; plane 0
                 ///< is exactly the one-plane result
  kFree,         ///< fitted together, best error of all planes; plane 0 alone is of no use
  kTied,         ///< scales in the fixed ratio 3:2 (9:5:3)
};

/// Least and most nonzero codes among 4 consecutive inputs, in each plane.
struct Sparsity {
  int min_nonzero = 0;
  int max_nonzero = 4;
  constexpr bool dense() const noexcept { return min_nonzero == 0 && max_nonzero == 4; }
  bool operator==(const Sparsity&) const = default;
};
inline constexpr Sparsity kDense{};
inline constexpr Sparsity kTwoOfFour{2, 2};
inline constexpr Sparsity kThreeOfFour{3, 3};
inline constexpr Sparsity kOneToTwoOfFour{1, 2};

inline constexpr int kMaxPlanes = 3;
/// Largest group of kGptq; the other methods take any.
inline constexpr int64_t kMaxFeedbackGroup = 1024;

struct TernaryOptions {
  TernaryMethod method = TernaryMethod::kMse;
  /// Of the rules kFixed, kQuantile, kTopk, kL1 (there the weight of the penalty); unset = preset.
  std::optional<double> threshold;
  /// kTopk: tries shares from 1 % to 75 % and keeps the best for each row (output channel).
  bool search_threshold = false;
  int64_t group = 128;  ///< inputs that share a scale; the last group of a row may be shorter
  int n_planes = 1;     ///< 1..kMaxPlanes
  PlaneFit plane_fit = PlaneFit::kProgressive;
  Sparsity sparsity;
  /// Rounds of coordinate descent and refit under the metric. Unset: 4 for kGptq, 0 for others.
  std::optional<int> refine_sweeps;
  /// Passes of descent by pairs in each round of refinement (dense codes).
  int pair_passes = 1;
  /// kProgressive with several dense planes and refinement: weight of the loss of the planes
  /// before the last alone, beside that of all planes; squared for those before the last two. 0 =
  /// only all planes count.
  double prefix_weight = 0.05;
  /// kGptq: weights the choice of a group's scales by the conditional variances of its inputs.
  /// Better when the inputs are not rotated, slightly worse when they are.
  bool weight_scales = false;
};

/// InvalidArgument for the first setting that is out of range or does not fit the others.
void check_options(const TernaryOptions& options, int64_t rows, int64_t cols, bool has_metric);

/// "gptq" and so on; nothing when unknown.
std::optional<TernaryMethod> parse_ternary_method(std::string_view name) noexcept;
std::string_view ternary_method_name(TernaryMethod method) noexcept;
/// "none", "2:4", "3:4", "1-2:4".
std::optional<Sparsity> parse_sparsity(std::string_view name) noexcept;

}  // namespace ts
