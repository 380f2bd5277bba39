/// Rows of a matrix in another basis.
#pragma once

#include <memory>

#include "convert/row_source.h"
#include "hadamard/rotation.h"

namespace ts {

/// Rows stored as R w, as w in the order of the activations they are multiplied with.
RowSourcePtr unrotated_rows(RowSourcePtr inner, std::shared_ptr<const Rotation> rotation);
/// Rows w as R w, computed in double precision.
RowSourcePtr rotated_rows(RowSourcePtr inner, std::shared_ptr<const Rotation> rotation);

/// One row: w = R^T row, undoing the order of grouped heads, too. `row` and `out` [width] must not
/// overlap.
void unrotate_row(const Rotation& rotation, const float* row, float* out);
/// One row: out = R w, computed in double precision. May be the same.
void rotate_row(const Rotation& rotation, const float* w, float* out);

}  // namespace ts
