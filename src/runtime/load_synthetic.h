/// An engine over a model of random weights that is made in memory.
#pragma once

#include <memory>

#include <tensorsharp/engine.hpp>

#include "base/progress.h"
#include "model/synthetic/synthetic_model.h"

namespace ts {

struct SyntheticEngine {
  std::shared_ptr<const Engine> engine;
  double make_seconds = 0;  ///< for the weights; loading is info().load_seconds
};

/// Compares what the model needs with what there is before its weights take memory; they come from
/// no file, so all of them must fit. Then makes the weights and loads the model as from a file.
/// Errors: ResourceExhausted (does not fit), Cancelled, and those of Engine::load().
SyntheticEngine load_synthetic(const SyntheticModel& model, const LoadOptions& options,
                               const Progress& progress);

}  // namespace ts
