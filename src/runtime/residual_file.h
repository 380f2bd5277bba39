/// The sidecar of a model file: further planes of its matrices (docs/formats/residuals.md).
#pragma once

#include <memory>

#include "base/progress.h"
#include "format/gguf.h"

namespace ts {

/// Key of the sidecar that holds the SHA-256 of the model file its planes were fitted to.
inline constexpr const char* kResidualBaseKey = "tensorsharp.residual.base_sha256";

/// Opens the sidecar of `model`; null when there is none, with a warning when the model says that
/// it was fitted together with further planes. Errors: FormatError (damaged, no residual file, made
/// for another model: both digests are named), Unsupported (of a split model file), Cancelled.
std::shared_ptr<const GgufFile> open_residual(const GgufFile& model, const Progress& progress);

}  // namespace ts
