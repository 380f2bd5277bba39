/// Finding out why a model computes NaN or infinity.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "format/gguf.h"
#include "model/model.h"

namespace ts {

/// Index of the first value that is NaN or infinite, or nothing.
std::optional<size_t> find_non_finite(std::span<const float> values) noexcept;

/// Decodes the model's tensors in order and describes the first value that is not finite: tensor,
/// row and block. Nothing when all are finite.
std::optional<std::string> find_non_finite_weight(const GgufFile& file, const Model& model);

/// Runs `ids` again from an empty state and describes the first intermediate result that is not
/// finite. Nothing when all are finite.
std::optional<std::string> find_non_finite_activation(const Model& model, Backend& backend,
                                                      std::span<const int32_t> ids, KvType kv_type);

}  // namespace ts
