/// tensorsharp.requires: features without which a file would be computed wrongly.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "format/metadata.h"

namespace ts {

/// In files with output-side rotations (hadamard_contract.h).
inline constexpr std::string_view kRequiresOutputRotation = "output_rotation";

/// The features that the file asks for; empty when it asks for none. Errors: Unsupported, naming
/// the first one that this version does not have; FormatError when the key is neither a string nor
/// a list of strings.
std::vector<std::string> read_required_features(const Metadata& metadata);

}  // namespace ts
