/// A backend for long passes over f32 weights: products by BLAS, everything else by another
/// backend.
#pragma once

#include <memory>

#include "backend/backend.h"

namespace ts {

/// Products with f32 matrices that need no rotation are computed by BLAS in pieces whose shapes
/// depend on the problem alone, so that results do not depend on the number of threads. All other
/// operations are those of `inner`, and so is the memory.
std::shared_ptr<Backend> make_blas_backend(std::shared_ptr<Backend> inner);

}  // namespace ts
