/// Where the bytes of a quantized model go, term by term; the terms add up to the files exactly.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace ts {

struct BitTerm {
  std::string what;
  uint64_t bytes = 0;
  uint64_t weights = 0;  ///< that these bytes stand for; 0 for overhead
};

struct BitAccount {
  std::vector<BitTerm> terms;
  uint64_t file_bytes = 0;      ///< sum of the terms
  uint64_t tensor_bytes = 0;    ///< of them, tensor data
  uint64_t n_weights = 0;       ///< values of all tensors, residual planes not counted again
  uint64_t linear_bytes = 0;    ///< of the layers' matrices, all planes
  uint64_t linear_weights = 0;  ///< of them

  double bits_per_weight() const noexcept {
    return n_weights == 0
               ? 0
               : 8.0 * static_cast<double>(tensor_bytes) / static_cast<double>(n_weights);
  }
  double linear_bits_per_weight() const noexcept {
    return linear_weights == 0
               ? 0
               : 8.0 * static_cast<double>(linear_bytes) / static_cast<double>(linear_weights);
  }
};

}  // namespace ts
