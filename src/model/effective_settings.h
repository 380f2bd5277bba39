/// Settings of other architectures, or of later versions of this one, that would change what a
/// model computes: a file that has one set must not be run as if it had not.
#pragma once

#include "model/config.h"

namespace ts {

/// Throws Unsupported naming the first key "<architecture>.<suffix>" whose value is not neutral and
/// that the architecture does not compute; FormatError for a value of the wrong type or one that
/// contradicts the rest of the file.
void refuse_unknown_settings(const ConfigReader& reader, const ModelConfig& config);

}  // namespace ts
