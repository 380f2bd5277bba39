/// What a model needs in memory against what there is.
#pragma once

#include <cstdint>
#include <string>

#include <tensorsharp/engine.hpp>

#include "format/gguf.h"
#include "model/model.h"
#include "runtime/memory_limits.h"

namespace ts {

/// "1.5 GB" (decimal units).
std::string format_bytes(uint64_t bytes);

KvType kv_type_of(KvCacheType type) noexcept;

/// Tokens per forward pass for these options. InvalidArgument when it is not a positive multiple of
/// 64.
int64_t prefill_chunk_of(const LoadOptions& options, int64_t context);

/// The plan for `model`, which need not be loaded. Without options.context the context is
/// min(model, 8192), reduced to what fits (not below 512). InvalidArgument: a context below 1 or
/// beyond 2^30.
MemoryPlan plan_memory(const Model& model, const GgufFile& file, const LoadOptions& options,
                       const AvailableMemory& available);

/// One line: need, parts, limit.
std::string describe_plan(const MemoryPlan& plan);

/// Where the bytes of the weights are when memory runs short.
enum class WeightsOn { kDisk, kMemory };

/// Throws ResourceExhausted with the table and the advice when the plan does not fit. Weights
/// mapped from a disk that exceed the memory by little only cause a warning: pages are then read
/// again from the file, slowly.
void require_fit(const MemoryPlan& plan, const std::string& path,
                 WeightsOn weights_on = WeightsOn::kDisk);

}  // namespace ts
