/// Models stored rotated or in several planes, read as the ordinary weights they stand for.
#pragma once

#include <set>
#include <string>

#include "base/progress.h"
#include "convert/model_source.h"

namespace ts {

/// Makes every matrix that the file stores rotated come out in the ordinary basis, and every one
/// with further planes beside the file as the sum of its planes; the keys of the rotation go.
/// Returns the names of the tensors concerned; what holds their values is f32 now.
/// Errors: Unsupported (a file that is rotated on its output side, too), FormatError (planes of
/// another file).
std::set<std::string> to_ordinary_basis(ModelSource& source, const Progress& progress);

}  // namespace ts
