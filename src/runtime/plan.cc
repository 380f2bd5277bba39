#include "runtime/plan.h"

#include <algorithm>
#include <array>
#include <optional>

#include <fmt/format.h>

#include <tensorsharp/error.hpp>

#include "backend/cpu/cpu_backend.h"
#include "base/checked_math.h"
#include "base/log.h"

namespace ts {
namespace {

constexpr int64_t kDefaultContext = 8192;
constexpr int64_t kSmallestDefaultContext = 512;
constexpr int64_t kContextStep = 64;
constexpr int64_t kMaxContext = int64_t{1} << 30;
constexpr int64_t kDefaultChunk = 256;
constexpr int64_t kWideContext = 4096;
/// Weights may exceed the memory by this fraction before loading is refused.
constexpr double kTolerableOverflow = 0.25;
/// Code, libraries, stacks and what the allocator keeps.
constexpr uint64_t kProgramBytes = uint64_t{48} << 20;
constexpr std::string_view kWeights = "weights";
constexpr std::string_view kKvCache = "KV cache";
constexpr std::string_view kAddressSpace = "RLIMIT_AS";

uint64_t saturating_add(uint64_t a, uint64_t b) {
  return checked_add(a, b).value_or(UINT64_MAX);
}

/// Vocabulary, merges and their indexes: the strings are held once, with about 120 bytes of tables
/// per entry.
uint64_t tokenizer_bytes(const Metadata& metadata) {
  uint64_t total = 0;
  for (const char* key : {"tokenizer.ggml.tokens", "tokenizer.ggml.merges"}) {
    if (const MetadataValue* v = metadata.find(key); v == nullptr) continue;
    const auto* list = metadata.get_strings(key);
    if (list == nullptr) continue;
    for (const std::string& s : *list)
      total += s.size() + 120;
  }
  return total;
}

MemoryPlan plan_at(const Model& model, const GgufFile& file, const LoadOptions& options,
                   const AvailableMemory& available, int64_t context) {
  MemoryPlan plan;
  plan.context = context;
  plan.model_context = model.config().context_length;
  plan.available_bytes = available.bytes;
  plan.limit_name = available.limit_name;
  StateLayout state = model.state_layout(context, kv_type_of(options.kv));
  state.checkpoint_bytes = options.checkpoint_bytes;
  const WorkspaceLayout workspace = model.workspace_layout(prefill_chunk_of(options, context));
  const auto logits = static_cast<uint64_t>(model.config().n_vocab) * sizeof(float);
  const auto add = [&](std::string_view name, uint64_t bytes) {
    plan.items.push_back({std::string(name), bytes});
  };
  add(kWeights, model.weight_bytes());
  add(kKvCache, state.kv_bytes());
  if (state.has_recurrent()) {
    add("recurrent state", state.recurrent_bytes());
    // A conversation shorter than one step of the grid remembers none.
    const auto n_remembered =
        static_cast<uint64_t>(std::min(state.max_checkpoints(), context / kCheckpointGrid));
    if (n_remembered > 0) add("remembered states", n_remembered * state.recurrent_bytes());
  }
  add("scratch", workspace.bytes());
  add("output buffers", 2 * logits);
  add("tokenizer", tokenizer_bytes(file.metadata()));
  add("program", kProgramBytes);
  for (const MemoryPlan::Item& item : plan.items)
    plan.total_bytes = saturating_add(plan.total_bytes, item.bytes);
  plan.fits = plan.total_bytes <= plan.available_bytes;
  return plan;
}

/// What the weights take more than in the file once the kernels' own layouts hold those that have
/// one; nothing when no weight is repacked. Copies need memory that the system cannot take back by
/// dropping pages of the file, and address space beside the map.
std::optional<uint64_t> growth_by_repacking(const GgufFile& file, const LoadOptions& options,
                                            const AvailableMemory& available) {
  if (available.limit_name == kAddressSpace) return std::nullopt;
  CpuBackendOptions backend;
  backend.isa = options.isa == "auto" ? "" : options.isa;
  backend.exact = options.exact;
  backend.repack = options.repack;
  uint64_t before = 0, after = 0;
  for (const TensorEntry& tensor : file.tensors()) {
    if (tensor.shape.n_rows() < 2) continue;
    const uint64_t bytes = repacked_bytes(backend, tensor.type, tensor.shape);
    if (bytes == 0) continue;
    before += tensor.bytes;
    after += bytes;
  }
  if (after == 0) return std::nullopt;
  return after > before ? after - before : 0;
}

uint64_t item_bytes(const MemoryPlan& plan, std::string_view name) {
  for (const MemoryPlan::Item& item : plan.items) {
    if (item.name == name) return item.bytes;
  }
  return 0;
}

/// The largest context that fits, a multiple of kContextStep; 0 = none.
int64_t largest_context(const Model& model, const GgufFile& file, const LoadOptions& options,
                        const AvailableMemory& available) {
  const MemoryPlan smallest = plan_at(model, file, options, available, kContextStep);
  const uint64_t per_step = item_bytes(smallest, kKvCache);
  // Scratch memory and remembered states are as large as they get at this context.
  const MemoryPlan wide = plan_at(model, file, options, available, kWideContext);
  const uint64_t fixed = wide.total_bytes - item_bytes(wide, kKvCache);
  if (fixed >= available.bytes || per_step == 0) return 0;
  const uint64_t steps = (available.bytes - fixed) / per_step;
  return static_cast<int64_t>(std::min<uint64_t>(steps, kMaxContext / kContextStep)) * kContextStep;
}

void add_advice(MemoryPlan& plan, const Model& model, const GgufFile& file, LoadOptions options,
                const AvailableMemory& available) {
  if (const int64_t best = largest_context(model, file, options, available); best > 0)
    plan.advice.push_back(fmt::format("a context of {} would fit (--ctx {})", best, best));
  if (options.kv != KvCacheType::kQ8) {
    options.kv = KvCacheType::kQ8;
    if (plan_at(model, file, options, available, plan.context).fits)
      plan.advice.push_back("8-bit keys and values would fit (--kv q8)");
  }
  if (plan.advice.empty())
    plan.advice.push_back(fmt::format(
        "the weights alone need {}: use a smaller model or quantization, or raise the limit",
        format_bytes(model.weight_bytes())));
}

}  // namespace

std::string format_bytes(uint64_t bytes) {
  constexpr std::array<const char*, 5> kUnits = {"kB", "MB", "GB", "TB", "PB"};
  if (bytes < 1000) return fmt::format("{} bytes", bytes);
  double value = static_cast<double>(bytes) / 1000.0;
  size_t unit = 0;
  while (value >= 999.95 && unit + 1 < kUnits.size()) {
    value /= 1000.0;
    ++unit;
  }
  return fmt::format("{:.1f} {}", value, kUnits[unit]);
}

KvType kv_type_of(KvCacheType type) noexcept {
  switch (type) {
    case KvCacheType::kF32:
      return KvType::kF32;
    case KvCacheType::kF16:
      return KvType::kF16;
    case KvCacheType::kQ8:
      return KvType::kQ8;
  }
  return KvType::kF32;
}

int64_t prefill_chunk_of(const LoadOptions& options, int64_t context) {
  const int64_t chunk = options.prefill_chunk == 0 ? kDefaultChunk : options.prefill_chunk;
  if (chunk < kContextStep || chunk % kContextStep != 0 || chunk > (1 << 20))
    throw InvalidArgument(fmt::format("prefill_chunk is {}, expected a multiple of {} up to {}",
                                      chunk, kContextStep, 1 << 20));
  const int64_t useful =
      (std::max<int64_t>(context, 1) + kContextStep - 1) / kContextStep * kContextStep;
  return std::min(chunk, useful);
}

MemoryPlan plan_memory(const Model& model, const GgufFile& file, const LoadOptions& options,
                       const AvailableMemory& available) {
  if (options.context < 0 || options.context > kMaxContext)
    throw InvalidArgument(fmt::format("the context is {}, expected a number from 1 to {}",
                                      options.context, kMaxContext));
  int64_t context = options.context;
  if (context == 0) {
    context = std::min(model.config().context_length, kDefaultContext);
    if (!plan_at(model, file, options, available, context).fits) {
      const int64_t best = largest_context(model, file, options, available);
      if (best >= kSmallestDefaultContext) context = std::min(context, best);
    }
  }
  MemoryPlan plan = plan_at(model, file, options, available, context);
  if (plan.fits) {
    const auto growth = growth_by_repacking(file, options, available);
    plan.repacked = growth && *growth <= plan.available_bytes - plan.total_bytes;
    if (plan.repacked) {
      for (MemoryPlan::Item& item : plan.items)
        item.bytes += item.name == kWeights ? *growth : 0;
      plan.total_bytes += *growth;
    }
  }
  if (!plan.fits) add_advice(plan, model, file, options, available);
  return plan;
}

std::string describe_plan(const MemoryPlan& plan) {
  std::string parts;
  for (const MemoryPlan::Item& item : plan.items) {
    if (!parts.empty()) parts += ", ";
    parts += fmt::format("{} {}{}", item.name, format_bytes(item.bytes),
                         plan.repacked && item.name == kWeights ? " (repacked)" : "");
  }
  return fmt::format("needs {} at a context of {} ({}); available {} ({})",
                     format_bytes(plan.total_bytes), plan.context, parts,
                     format_bytes(plan.available_bytes), plan.limit_name);
}

void require_fit(const MemoryPlan& plan, const std::string& path, WeightsOn weights_on) {
  if (plan.fits) return;
  std::string advice;
  for (const std::string& line : plan.advice) {
    if (!advice.empty()) advice += "; ";
    advice += line;
  }
  const uint64_t weights = item_bytes(plan, kWeights);
  const uint64_t own = plan.total_bytes - std::min(weights, plan.total_bytes);
  const uint64_t excess = plan.total_bytes - plan.available_bytes;
  // An address-space limit counts mapped pages like all others; memory limits let them be dropped.
  const bool droppable = weights_on == WeightsOn::kDisk && plan.limit_name != kAddressSpace;
  if (droppable && own <= plan.available_bytes &&
      static_cast<double>(excess) <= kTolerableOverflow * static_cast<double>(weights)) {
    log_warning(
        fmt::format("{}: {}: parts of the weights will be read from the file again and "
                    "again, which is slow; {}",
                    path, describe_plan(plan), advice));
    return;
  }
  throw ResourceExhausted(
      fmt::format("{}: does not fit in memory: {}\n{}", path, describe_plan(plan), advice));
}

}  // namespace ts
