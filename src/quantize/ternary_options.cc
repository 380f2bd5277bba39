#include "quantize/ternary_options.h"

#include <array>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include <tensorsharp/error.hpp>

namespace ts {
namespace {

constexpr std::array<std::pair<std::string_view, TernaryMethod>, 7> kNames{
    {{"absmean", TernaryMethod::kAbsmean},
     {"fixed", TernaryMethod::kFixed},
     {"quantile", TernaryMethod::kQuantile},
     {"topk", TernaryMethod::kTopk},
     {"l1", TernaryMethod::kL1},
     {"mse", TernaryMethod::kMse},
     {"gptq", TernaryMethod::kGptq}}};

bool fits_planes_together(TernaryMethod method) noexcept {
  return method == TernaryMethod::kMse || method == TernaryMethod::kGptq;
}

void check_threshold(const TernaryOptions& options) {
  if (options.search_threshold && options.method != TernaryMethod::kTopk)
    throw InvalidArgument("a threshold can be searched with the method topk only");
  if (!options.threshold) return;
  const double t = *options.threshold;
  const auto refuse = [&](std::string_view range) {
    throw InvalidArgument(fmt::format("the method {} takes a threshold {}, not {}",
                                      ternary_method_name(options.method), range, t));
  };
  switch (options.method) {
    case TernaryMethod::kFixed:
      if (!(t >= 0 && t <= 100)) refuse("from 0 to 100 standard deviations");
      return;
    case TernaryMethod::kQuantile:
      if (!(t >= 0 && t < 1)) refuse("from 0 to below 1");
      return;
    case TernaryMethod::kTopk:
      if (options.search_threshold)
        throw InvalidArgument("a threshold is either given or searched, not both");
      if (!(t > 0 && t <= 1)) refuse("(the share that is kept) above 0, up to 1");
      return;
    case TernaryMethod::kL1:
      if (!(t >= 0 && std::isfinite(t))) refuse("(the weight of the penalty) of 0 or more");
      return;
    case TernaryMethod::kAbsmean:
    case TernaryMethod::kMse:
    case TernaryMethod::kGptq:
      throw InvalidArgument(fmt::format("the method {} finds its own threshold: leave it out",
                                        ternary_method_name(options.method)));
  }
}

}  // namespace

void check_options(const TernaryOptions& options, int64_t rows, int64_t cols, bool has_metric) {
  const auto method = ternary_method_name(options.method);
  if (rows < 1 || cols < 1)
    throw InvalidArgument(fmt::format(
        "a matrix of {} rows and {} columns: expected at least one of each", rows, cols));
  if (options.group < 1)
    throw InvalidArgument(fmt::format("a group of {} weights: expected 1 or more", options.group));
  if (options.n_planes < 1 || options.n_planes > kMaxPlanes)
    throw InvalidArgument(fmt::format("{} planes: expected 1 to {}", options.n_planes, kMaxPlanes));
  const Sparsity& s = options.sparsity;
  if (s.min_nonzero < 0 || s.max_nonzero > 4 || s.min_nonzero > s.max_nonzero || s.max_nonzero < 1)
    throw InvalidArgument(
        fmt::format("{} to {} nonzero weights of 4: expected 0 <= least <= most <= 4 and most >= 1",
                    s.min_nonzero, s.max_nonzero));
  if (!s.dense() && (options.group % 4 != 0 || cols % 4 != 0))
    throw InvalidArgument(fmt::format(
        "sparse patterns of 4 weights need rows ({}) and groups ({}) of a multiple of 4", cols,
        options.group));
  check_threshold(options);
  if (options.n_planes > 1 && !fits_planes_together(options.method) &&
      (options.plane_fit == PlaneFit::kFree || options.plane_fit == PlaneFit::kTied))
    throw InvalidArgument(fmt::format(
        "the method {} fits planes one after the other: use mse or gptq to fit them together",
        method));
  if (options.refine_sweeps && (*options.refine_sweeps < 0 || *options.refine_sweeps > 100))
    throw InvalidArgument(
        fmt::format("{} refinement sweeps: expected 0 to 100", *options.refine_sweeps));
  if (options.pair_passes < 0 || options.pair_passes > 100)
    throw InvalidArgument(
        fmt::format("{} passes by pairs: expected 0 to 100", options.pair_passes));
  if (!(options.prefix_weight >= 0 && options.prefix_weight <= 100))
    throw InvalidArgument(fmt::format("the first planes have the weight {}: expected 0 to 100",
                                      options.prefix_weight));
  const bool needs_metric =
      options.method == TernaryMethod::kGptq || options.refine_sweeps.value_or(0) > 0;
  if (needs_metric && !has_metric)
    throw InvalidArgument(
        fmt::format("{} needs statistics of the layer's inputs: calibrate, or use the method mse",
                    options.method == TernaryMethod::kGptq ? "the method gptq" : "refinement"));
  if (options.method == TernaryMethod::kGptq && std::min(options.group, cols) > kMaxFeedbackGroup)
    throw InvalidArgument(fmt::format("the method gptq takes groups of up to {} weights, not {}",
                                      kMaxFeedbackGroup, options.group));
}

std::optional<TernaryMethod> parse_ternary_method(std::string_view name) noexcept {
  for (const auto& [known, method] : kNames) {
    if (known == name) return method;
  }
  return std::nullopt;
}

std::string_view ternary_method_name(TernaryMethod method) noexcept {
  for (const auto& [name, known] : kNames) {
    if (known == method) return name;
  }
  return "unknown";
}

std::optional<Sparsity> parse_sparsity(std::string_view name) noexcept {
  if (name == "none") return kDense;
  if (name == "2:4") return kTwoOfFour;
  if (name == "3:4") return kThreeOfFour;
  if (name == "1-2:4") return kOneToTwoOfFour;
  return std::nullopt;
}

}  // namespace ts
