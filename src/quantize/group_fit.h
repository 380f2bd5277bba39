/// The fit of one group of weights on its own: scales and codes.
#pragma once

#include <cstdint>
#include <vector>

#include "quantize/levels.h"
#include "quantize/ternary_options.h"

namespace ts {

/// Where the codes of a run of weights go: plane p at codes[p][i].
struct CodeRun {
  int8_t* plane[kMaxPlanes] = {};
  CodeRun at(int64_t offset) const noexcept {
    CodeRun run;
    for (int p = 0; p < kMaxPlanes; ++p)
      run.plane[p] = plane[p] ? plane[p] + offset : nullptr;
    return run;
  }
  void set(int64_t i, int n_planes, const Level& level, bool negative) const noexcept {
    for (int p = 0; p < n_planes; ++p)
      plane[p][i] = static_cast<int8_t>(negative ? -level.code[p] : level.code[p]);
  }
};

/// Rounds a scale to the nearest binary16. InvalidArgument when it is beyond 65504.
float round_scale(double scale);
/// The ratios of tied planes: 3:2 or 9:5:3; 1 for a single plane.
const int* tied_ratios(int n_planes) noexcept;
/// Rounds the common unit of tied planes so that every plane's scale is exactly a binary16.
double round_tied_unit(double unit, int n_planes);

/// One instance per thread: it owns scratch memory.
class GroupFitter {
 public:
  explicit GroupFitter(const TernaryOptions& options);

  /// kMse and kGptq: the scales [n_planes], rounded, that are best for w [n] under the diagonal
  /// weights h [n] (null = 1). One dense plane: the exact optimum by a sorted search.
  void fit_scales(const float* w, const float* h, int64_t n, float* scales);

  /// The best codes for given scales; values [n] is what they mean.
  void choose_codes(const float* w, const float* h, int64_t n, const float* scales,
                    const CodeRun& codes, float* values) const;

  /// The rules that set a threshold: one plane. threshold as in TernaryOptions.
  void fit_by_rule(const float* w, int64_t n, double threshold, float* scale, int8_t* codes,
                   float* values);

 private:
  void fit_one_plane(const float* w, const float* h, int64_t n, float* scale);
  double alternate(const float* w, const float* h, int64_t n, double* scales);
  void codes_for(const float* w, const float* h, int64_t n, const Levels& levels,
                 const CodeRun& codes, float* values) const;
  void keep_by_threshold(const float* w, int64_t n, double threshold, int8_t* codes) const;

  TernaryOptions options_;
  BlockOfFour pattern_;
  std::vector<float> sorted_;
  std::vector<std::pair<float, float>> pairs_;
  std::vector<int8_t> code_storage_;
  std::vector<float> value_storage_;
};

/// The preset threshold of a rule; 0 for methods without one.
double preset_threshold(TernaryMethod method) noexcept;

}  // namespace ts
