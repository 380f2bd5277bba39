/// How far the weights of a model are from those of a reference, tensor by tensor.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "base/progress.h"
#include "base/thread_pool.h"

namespace ts {

struct WeightError {
  std::string name;
  double relative_error = 0;  ///< Frobenius norm of the difference / of the reference
  double sqnr_db = 0;         ///< -20 log10 of it; capped at 300 where both are equal
  double min_row_cosine = 1;  ///< of the rows that are not all zero in the reference
};

/// Both are read in the ordinary basis, with all planes: files that are rotated differently or not
/// at all compare as what they compute. Tensors in the order of `model`.
/// Errors: FormatError (another architecture, a tensor missing in one of them or of another shape),
/// and those of opening either; Cancelled.
std::vector<WeightError> compare_weights(const std::filesystem::path& model,
                                         const std::filesystem::path& reference, ThreadPool& pool,
                                         const Progress& progress);

}  // namespace ts
