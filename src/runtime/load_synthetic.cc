#include "runtime/load_synthetic.h"

#include <chrono>

#include "base/cpu_topology.h"
#include "runtime/engine_impl.h"
#include "runtime/plan.h"

namespace ts {

SyntheticEngine load_synthetic(const SyntheticModel& model, const LoadOptions& options,
                               const Progress& progress) {
  const auto begin = std::chrono::steady_clock::now();
  const AvailableMemory available = available_memory();
  SyntheticImage image(model, options.huge_pages != "off");
  const auto outline = load_model(image.file(), nullptr);
  const MemoryPlan plan = plan_memory(*outline, *image.file(), options, available);
  require_fit(plan, model.name(), WeightsOn::kMemory);
  if (options.on_plan) options.on_plan(plan);
  image.fill(model, options.n_threads > 0 ? options.n_threads : default_threads().n_threads,
             progress);
  const auto made = std::chrono::steady_clock::now();
  SyntheticEngine result;
  result.make_seconds = std::chrono::duration<double>(made - begin).count();
  LoadOptions rest = options;
  rest.on_plan = nullptr;  // it has seen the plan
  result.engine = std::make_shared<EngineImpl>(image.file(), available, made, rest);
  return result;
}

}  // namespace ts
