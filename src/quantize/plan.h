/// What becomes of every tensor of a model: type, planes, rotation. Decided before anything is
/// computed, so that a dry run can show it and a wrong request fails at once.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "convert/model_source.h"
#include "quantize/absorbed_rotation.h"
#include "quantize/policy.h"
#include "quantize/quantize.h"
#include "quantize/rotation_choice.h"

namespace ts {

enum class TensorRole : uint8_t { kLinear, kEmbedding, kHead, kOther };

struct PlannedTensor {
  OutputTensor tensor;  ///< with the chosen codec; rows in the basis of the source
  TensorRole role = TensorRole::kOther;
  int64_t layer = -1;         ///< -1: of the whole model
  bool fit = false;           ///< ternary planes are fitted; else the values are copied or encoded
  TernaryOptions options;     ///< of a fit
  bool planes_fixed = false;  ///< the policy says how many
  std::shared_ptr<const Rotation> rotation;  ///< null = stored as it is
  bool absorbed =
      false;  ///< its inputs are rotated by the weights before it; see absorbed_rotation.h
  std::string remark;
  int n_planes() const noexcept { return fit ? options.n_planes : 1; }
  bool keeps_source() const noexcept { return !fit && !rotation && tensor.codec == tensor.kept; }
};

struct QuantizePlan {
  const Codec* main = nullptr;
  TernaryMethod method = TernaryMethod::kMse;
  int n_layers = 0;
  std::vector<PlannedTensor> tensors;  ///< in output order: of the whole model first, then by layer
  RotationSet rotations{0, 0, std::nullopt};
  AbsorbedRotation absorbed;
  Metadata metadata;  ///< of the output
  uint64_t alignment = 32;
  std::vector<std::string> notes;
  int max_planes() const noexcept;
};

/// Takes the tensors out of `source`. Errors: as quantize_model().
QuantizePlan plan_quantization(ModelSource& source, const std::string& input,
                               const QuantizeOptions& options, const Progress& progress);

/// The exact sizes of the files that the plan gives.
BitAccount account_of(const QuantizePlan& plan, const Metadata& residual_metadata);

/// Metadata of the sidecar that holds further planes; the digest of the base is all zeros.
Metadata residual_metadata(const QuantizePlan& plan);
/// "<tensor>.plane1" and so on.
std::string plane_name(const std::string& tensor, int plane);

}  // namespace ts
