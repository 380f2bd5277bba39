#include "quantize/budget.h"

namespace ts {
namespace {

struct Step {
  int to = 0;       ///< planes after it
  double gain = 0;  ///< harm removed per byte
};

/// The best step from the choice's present number of planes.
Step best_step(const PlaneChoice& choice) {
  Step best;
  const auto have = static_cast<size_t>(choice.n_planes);
  for (size_t to = have + 1; to <= choice.harm.size(); ++to) {
    const double removed = choice.harm[have - 1] - choice.harm[to - 1];
    const double gain =
        removed / (static_cast<double>(choice.plane_bytes) * static_cast<double>(to - have));
    if (gain > best.gain) best = {static_cast<int>(to), gain};
  }
  return best;
}

}  // namespace

void spend_budget(std::span<PlaneChoice> choices, uint64_t bytes) {
  uint64_t used = 0;
  for (PlaneChoice& choice : choices) {
    choice.n_planes = 1;
    used += choice.plane_bytes;
  }
  while (true) {
    PlaneChoice* chosen = nullptr;
    Step step;
    for (PlaneChoice& choice : choices) {
      const Step candidate = best_step(choice);
      if (candidate.to == 0 || candidate.gain <= step.gain) continue;
      const uint64_t more =
          choice.plane_bytes * static_cast<uint64_t>(candidate.to - choice.n_planes);
      if (used + more > bytes) continue;
      chosen = &choice;
      step = candidate;
    }
    if (chosen == nullptr) return;
    used += chosen->plane_bytes * static_cast<uint64_t>(step.to - chosen->n_planes);
    chosen->n_planes = step.to;
  }
}

}  // namespace ts
