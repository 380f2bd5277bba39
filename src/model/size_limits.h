/// Bounds on the sizes that a file or a configuration may claim: far above any known model, low
/// enough that products of two of them and a per-layer loop stay harmless.
#pragma once

#include <cstdint>

namespace ts {

inline constexpr int64_t kMaxLayers = 4096;
inline constexpr int64_t kMaxWidth = int64_t{1} << 24;
inline constexpr int64_t kMaxHeads = int64_t{1} << 16;
inline constexpr int64_t kMaxHeadDim = int64_t{1} << 14;  ///< also of recurrent states
inline constexpr int64_t kMaxContext = int64_t{1} << 31;
inline constexpr int64_t kMaxConvTaps = 16;
/// Every how many layers one is of another kind.
inline constexpr int64_t kMaxLayerPeriod = int64_t{1} << 16;

}  // namespace ts
