/// gemma3 (text part): four norms per layer, all stored minus one; local and global layers.
#include <cmath>

#include <fmt/format.h>

#include "convert/hf_family.h"
#include "convert/hf_rope.h"
#include "model/size_limits.h"

namespace ts {
namespace {

constexpr auto kAsIs = RowOrder::kAsIs;
constexpr auto kPlusOne = ValueChange::kPlusOne;
/// The period of global layers that readers assume when the key is absent.
constexpr int64_t kUsualPeriod = 6;
/// The 27B model: its queries are scaled by d_model / n_heads, which engines know by its layers.
constexpr int64_t kLayersOf27B = 62;
constexpr double kLocalRopeBase = 10000.0;

constexpr TensorRule kLayer[] = {
    {"input_layernorm.weight", "attn_norm.weight", Dim::kModel, Dim::kNone, kAsIs, kPlusOne},
    {"self_attn.q_proj.weight", "attn_q.weight", Dim::kQuery, Dim::kModel},
    {"self_attn.k_proj.weight", "attn_k.weight", Dim::kKey, Dim::kModel},
    {"self_attn.v_proj.weight", "attn_v.weight", Dim::kKey, Dim::kModel},
    {"self_attn.o_proj.weight", "attn_output.weight", Dim::kModel, Dim::kQuery},
    {"self_attn.q_norm.weight", "attn_q_norm.weight", Dim::kHead, Dim::kNone, kAsIs, kPlusOne},
    {"self_attn.k_norm.weight", "attn_k_norm.weight", Dim::kHead, Dim::kNone, kAsIs, kPlusOne},
    {"post_attention_layernorm.weight", "post_attention_norm.weight", Dim::kModel, Dim::kNone,
     kAsIs, kPlusOne},
    {"pre_feedforward_layernorm.weight", "ffn_norm.weight", Dim::kModel, Dim::kNone, kAsIs,
     kPlusOne},
    {"post_feedforward_layernorm.weight", "post_ffw_norm.weight", Dim::kModel, Dim::kNone, kAsIs,
     kPlusOne},
    {"mlp.gate_proj.weight", "ffn_gate.weight", Dim::kFf, Dim::kModel},
    {"mlp.up_proj.weight", "ffn_up.weight", Dim::kFf, Dim::kModel},
    {"mlp.down_proj.weight", "ffn_down.weight", Dim::kModel, Dim::kFf},
};

/// Every how many layers one is global. A list must say the same for every layer; one that never
/// names a global layer gives a period past the end, one without local layers gives 1.
int64_t read_period(const HfConfig& config, const HfSizes& sizes) {
  const nlohmann::json* list = find_layer_types(config, sizes);
  if (list == nullptr) {
    const auto period = config.get_int("sliding_window_pattern", 1, kMaxLayerPeriod);
    return period ? *period
                  : config.get_int("_sliding_window_pattern", 1, kMaxLayerPeriod)
                        .value_or(kUsualPeriod);
  }
  int64_t period = 0;
  for (size_t i = 0; i < list->size() && period == 0; ++i) {
    if ((*list)[i] == "full_attention") period = static_cast<int64_t>(i) + 1;
  }
  if (period == 0) {
    const int64_t stated =
        config.get_int("_sliding_window_pattern", 1, kMaxLayerPeriod).value_or(0);
    period = stated > sizes.n_layers ? stated : sizes.n_layers + 1;
  }
  for (int64_t i = 0; i < sizes.n_layers; ++i) {
    const char* expected = (i + 1) % period == 0 ? "full_attention" : "sliding_attention";
    if ((*list)[static_cast<size_t>(i)] != expected)
      config.refuse("layer_types",
                    fmt::format("layer {} is {}, expected {}: only every n-th layer can be global",
                                i, show_json((*list)[static_cast<size_t>(i)]), expected));
  }
  return period;
}

void check_query_scale(const HfConfig& config, const HfSizes& sizes) {
  const double scalar = config.get_number("query_pre_attn_scalar").value_or(256.0);
  const double expected = sizes.n_layers == kLayersOf27B ? static_cast<double>(sizes.d_model) /
                                                               static_cast<double>(sizes.n_heads)
                                                         : static_cast<double>(sizes.head_dim);
  if (std::abs(scalar - expected) > 1e-6 * expected)
    config.refuse("query_pre_attn_scalar",
                  fmt::format("found {}, but engines compute with {}", scalar, expected));
}

void write_metadata(const HfConfig& config, const HfSizes& sizes, Metadata& metadata,
                    std::vector<std::string>&) {
  if (config.get_number("attn_logit_softcapping"))
    config.refuse("attn_logit_softcapping", "not part of this architecture");
  if (config.get_bool("use_bidirectional_attention").value_or(false))
    config.refuse("use_bidirectional_attention", "only causal attention can be expressed");
  check_query_scale(config, sizes);

  const int64_t period = read_period(config, sizes);
  if (period > 1) {
    const int64_t window = config.get_int("sliding_window", 1, INT32_MAX).value_or(4096);
    set_u32(metadata, "gemma3.attention.sliding_window", window);
    if (period != kUsualPeriod)
      set_u32(metadata, "gemma3.attention.sliding_window_pattern", period);
    const HfRope local = read_hf_rope(config, "sliding_attention", kLocalRopeBase);
    if (local.type != "default")
      config.refuse(local.where + "rope_type",
                    local.type + ": local layers have no rotary scaling in this architecture");
    metadata.set("gemma3.rope.freq_base_swa", MetadataValue::f32(static_cast<float>(local.base)));
  }
  if (const auto cap = config.get_number("final_logit_softcapping"); cap && *cap != 0) {
    if (*cap < 0) config.fail("final_logit_softcapping", fmt::format("found {}", *cap));
    metadata.set("gemma3.final_logit_softcapping", MetadataValue::f32(static_cast<float>(*cap)));
  }
}

}  // namespace

const HfFamily kGemma3Family{
    "gemma3", kGlobalRulesOfShiftedNorms, kLayer,        131072, 256, 8, 4, 1e6,
    true,     "gelu_pytorch_tanh",        write_metadata};

}  // namespace ts
