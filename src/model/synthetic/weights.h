/// Random contents of tensors, as fast as memory takes them.
///
/// Rows of matrices are copied out of a pool of random blocks, one pool for each type and width,
/// each row from another place in it: neighbouring rows have nothing in common, and no two rows of
/// a matrix are equal unless it has more rows than the pool has blocks (262,144 of a ternary type).
/// For speed and memory that is as good as fresh numbers; nothing else is claimed.
///
/// Scales are such that a matrix keeps the size of what it multiplies (weights of variance 1/width)
/// so that activations stay near 1 through any number of layers. Ternary weights are -1, 0 and +1
/// equally often.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/progress.h"
#include "codec/codec.h"
#include "format/gguf.h"

namespace ts {

/// What the numbers of a tensor mean, which decides their range.
enum class SyntheticContent {
  kMatrix,        ///< weights of variance 1/width, of any type that can be encoded
  kNorm,          ///< F32, around 1
  kConvolution,   ///< F32, around 0
  kDecayRate,     ///< F32, -1 to -16
  kTimeStepBias,  ///< F32: the logarithm of steps between 0.001 and 0.1
};

struct SyntheticTensor {
  GgufOutputTensor info;
  SyntheticContent content = SyntheticContent::kMatrix;
};

/// Immutable after construction and thread-safe.
class SyntheticWeights {
 public:
  /// Makes the pools for these tensors. Errors: Cancelled.
  SyntheticWeights(std::span<const SyntheticTensor> tensors, uint64_t seed,
                   const Progress& progress);

  /// Writes rows [first_row, first_row + n_rows) of `tensor`, which is one of those given; `dst`
  /// has exactly their bytes. Every row depends on seed, tensor and index only.
  void fill(const SyntheticTensor& tensor, int64_t first_row, int64_t n_rows,
            std::span<std::byte> dst) const;

 private:
  struct Pool {
    size_t unit_elems = 0, unit_bytes = 0;
    uint64_t n_units = 0;          ///< a power of two
    std::vector<std::byte> bytes;  ///< n_units and, once more, the beginning: one row long
  };
  static Pool make_pool(const Codec& codec, int64_t width, uint64_t n_wanted, uint64_t seed,
                        const Progress& progress);

  uint64_t seed_;
  std::map<std::pair<TypeId, int64_t>, Pool> pools_;
};

}  // namespace ts
