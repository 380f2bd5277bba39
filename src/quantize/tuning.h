/// The last stage of method `tuned`: the scales of all ternary planes, the gains of norms and the
/// biases follow the gradient of the divergence between the original's predictions and the
/// quantized model's; codes stay. Method and figures: docs/quantize-methods.md.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/progress.h"
#include "base/thread_pool.h"
#include "model/config.h"
#include "quantize/calibration_text.h"
#include "quantize/model_image.h"
#include "quantize/plan.h"
#include "quantize/tensor_fit.h"

namespace ts {

struct TuneOptions {
  int steps = 40;
  int sequences_per_step = 4;
  /// Largest relative change of a scale or gain in one step.
  double rate = 2e-2;
};

/// Hidden states [n_tokens, d_model] after the last layer of the original, by sequence.
using HiddenStates = std::vector<std::vector<float>>;

struct TuneResult {
  /// Mean KL(original || quantized) on the holdout, in nats, before and with the values kept.
  double kl_before = 0, kl_after = 0;
  int steps_kept = 0;  ///< the step whose values were best on the holdout; 0 = nothing was changed
  /// New values of norms and biases, by tensor name.
  std::map<std::string, std::vector<float>> vectors;
};

/// Unsupported for a model whose operations have no gradient (recurrent layers, capped logits);
/// InvalidArgument without texts to learn from and others to measure on. To be asked before hours
/// are spent on the fit.
void check_tunable(const ModelConfig& config, const CalibrationTexts& texts);

/// `fitted` [plan.tensors.size()] are the packed planes of what was fitted; their scales are
/// replaced. `image`: its layers' weights are overwritten and dropped again.
/// The holdout decides which step is kept.
/// Memory: all layers' matrices in f32, codes at a byte each, the output matrix in f32, and what
/// TapeBackend needs for one sequence.
/// Errors: check_tunable(), Cancelled.
TuneResult tune_model(const QuantizePlan& plan, ModelImage& image, std::span<FittedTensor> fitted,
                      const CalibrationTexts& texts, const HiddenStates& originals,
                      const HiddenStates& holdout_originals, const TuneOptions& options,
                      ThreadPool& pool, const Progress& progress);

}  // namespace ts
