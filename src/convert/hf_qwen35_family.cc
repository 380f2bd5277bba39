/// qwen35: Qwen 3.5 and later, dense. Gated delta nets and, every few layers, attention with an
/// output gate. All norms are stored minus one except the one inside the delta nets; value heads
/// are grouped by key head and become tiled; blocks for multi-token prediction are left out.
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "base/quote_text.h"
#include "convert/hf_family.h"
#include "convert/hf_rope.h"
#include "model/size_limits.h"

namespace ts {
namespace {

constexpr auto kAsIs = RowOrder::kAsIs;
constexpr auto kPlusOne = ValueChange::kPlusOne;
constexpr int64_t kUsualInterval = 4;
constexpr double kUsualRotaryPart = 0.25;

constexpr TensorRule kAttentionLayer[] = {
    {"input_layernorm.weight", "attn_norm.weight", Dim::kModel, Dim::kNone, kAsIs, kPlusOne},
    // Per head the rows of the query, then those of its gate: as GGUF has them.
    {"self_attn.q_proj.weight", "attn_q.weight", Dim::kQueryGate, Dim::kModel},
    {"self_attn.k_proj.weight", "attn_k.weight", Dim::kKey, Dim::kModel},
    {"self_attn.v_proj.weight", "attn_v.weight", Dim::kKey, Dim::kModel},
    {"self_attn.o_proj.weight", "attn_output.weight", Dim::kModel, Dim::kQuery},
    {"self_attn.q_norm.weight", "attn_q_norm.weight", Dim::kHead, Dim::kNone, kAsIs, kPlusOne},
    {"self_attn.k_norm.weight", "attn_k_norm.weight", Dim::kHead, Dim::kNone, kAsIs, kPlusOne},
    {"post_attention_layernorm.weight", "post_attention_norm.weight", Dim::kModel, Dim::kNone,
     kAsIs, kPlusOne},
    {"mlp.gate_proj.weight", "ffn_gate.weight", Dim::kFf, Dim::kModel},
    {"mlp.up_proj.weight", "ffn_up.weight", Dim::kFf, Dim::kModel},
    {"mlp.down_proj.weight", "ffn_down.weight", Dim::kModel, Dim::kFf},
};

constexpr TensorRule kRecurrentLayer[] = {
    {"input_layernorm.weight", "attn_norm.weight", Dim::kModel, Dim::kNone, kAsIs, kPlusOne},
    {"linear_attn.in_proj_qkv.weight", "attn_qkv.weight", Dim::kChannels, Dim::kModel,
     RowOrder::kChannelRows},
    {"linear_attn.in_proj_z.weight", "attn_gate.weight", Dim::kValues, Dim::kModel,
     RowOrder::kValueRows},
    {"linear_attn.in_proj_a.weight", "ssm_alpha.weight", Dim::kValueHeads, Dim::kModel,
     RowOrder::kValueHeads},
    {"linear_attn.in_proj_b.weight", "ssm_beta.weight", Dim::kValueHeads, Dim::kModel,
     RowOrder::kValueHeads},
    {"linear_attn.conv1d.weight", "ssm_conv1d.weight", Dim::kChannels, Dim::kTaps,
     RowOrder::kChannelRows},
    {"linear_attn.A_log", "ssm_a", Dim::kValueHeads, Dim::kNone, RowOrder::kValueHeads,
     ValueChange::kMinusExp},
    {"linear_attn.dt_bias", "ssm_dt.bias", Dim::kValueHeads, Dim::kNone, RowOrder::kValueHeads},
    {"linear_attn.norm.weight", "ssm_norm.weight", Dim::kState},  // the one norm stored as it is
    {"linear_attn.out_proj.weight", "ssm_out.weight", Dim::kModel, Dim::kValues,
     RowOrder::kValueColumns},
    {"post_attention_layernorm.weight", "post_attention_norm.weight", Dim::kModel, Dim::kNone,
     kAsIs, kPlusOne},
    {"mlp.gate_proj.weight", "ffn_gate.weight", Dim::kFf, Dim::kModel},
    {"mlp.up_proj.weight", "ffn_up.weight", Dim::kFf, Dim::kModel},
    {"mlp.down_proj.weight", "ffn_down.weight", Dim::kModel, Dim::kFf},
};

int64_t stated_interval(const HfConfig& config) {
  return config.get_int("full_attention_interval", 1, kMaxLayerPeriod).value_or(kUsualInterval);
}

std::vector<bool> read_layer_kinds(const HfConfig& config, const HfSizes& sizes) {
  std::vector<bool> recurrent;
  const nlohmann::json* list = find_layer_types(config, sizes);
  if (list == nullptr) {
    const int64_t interval = stated_interval(config);
    for (int64_t i = 0; i < sizes.n_layers; ++i)
      recurrent.push_back((i + 1) % interval != 0);
    return recurrent;
  }
  for (const auto& kind : *list) {
    if (kind != "linear_attention" && kind != "full_attention")
      config.refuse("layer_types",
                    "found " + show_json(kind) + ", known are linear_attention and full_attention");
    recurrent.push_back(kind == "linear_attention");
  }
  return recurrent;
}

void read_sizes(const HfConfig& config, HfSizes& sizes) {
  sizes.conv_taps = config.get_int("linear_conv_kernel_dim", 1, kMaxConvTaps).value_or(4);
  sizes.state_dim = config.get_int("linear_key_head_dim", 1, kMaxHeadDim).value_or(128);
  sizes.n_k_heads = config.get_int("linear_num_key_heads", 1, kMaxHeads).value_or(16);
  sizes.n_v_heads = config.get_int("linear_num_value_heads", 1, kMaxHeads).value_or(32);
  const int64_t value_dim = config.get_int("linear_value_head_dim", 1, kMaxHeadDim).value_or(128);
  if (value_dim != sizes.state_dim)
    config.refuse("linear_value_head_dim",
                  fmt::format("{} is not linear_key_head_dim = {}; other sizes of values than of "
                              "keys are not part of this architecture",
                              value_dim, sizes.state_dim));
  if (sizes.n_v_heads % sizes.n_k_heads != 0)
    config.fail("linear_num_value_heads",
                fmt::format("found {}, expected a multiple of linear_num_key_heads = {}",
                            sizes.n_v_heads, sizes.n_k_heads));
  sizes.recurrent = read_layer_kinds(config, sizes);
}

/// Elements of a head that turn.
int64_t rotated_elements(const HfConfig& config, const HfSizes& sizes, const HfRope& rope) {
  const double part = rope.rotary_part.value_or(kUsualRotaryPart);
  const double exact = static_cast<double>(sizes.head_dim) * part;
  const double whole = std::floor(exact);
  if (!(whole >= 2 && whole <= static_cast<double>(sizes.head_dim) && std::fmod(whole, 2) == 0))
    config.fail("partial_rotary_factor",
                fmt::format("found {}, which turns {} of the {} elements of a head; expected an "
                            "even number of them",
                            part, exact, sizes.head_dim));
  return static_cast<int64_t>(whole);
}

/// Text has one position for all sections; other engines want the key none the less.
std::vector<int64_t> rotary_sections(const HfConfig& config, const HfRope& rope, int64_t n_rot) {
  const nlohmann::json* list = member(rope.settings, "mrope_section");
  if (list == nullptr) return {n_rot / 2, 0, 0, 0};
  const bool valid = list->is_array() && list->size() <= 4 &&
                     std::all_of(list->begin(), list->end(), [](const nlohmann::json& size) {
                       return size.is_number_integer() && size >= 0 && size <= kMaxHeadDim;
                     });
  if (!valid)
    config.fail(rope.where + "mrope_section",
                "found " + show_json(*list) + ", expected up to four sizes");
  auto sections = list->get<std::vector<int64_t>>();
  sections.resize(4, 0);
  return sections;
}

void write_metadata(const HfConfig& config, const HfSizes& sizes, Metadata& metadata,
                    std::vector<std::string>&) {
  if (!config.get_bool("attn_output_gate").value_or(true))
    config.refuse("attn_output_gate", "false: attention without a gate cannot be expressed");
  if (const auto gate = config.get_string("output_gate_type"); gate && *gate != "swish")
    config.refuse("output_gate_type", quote_text(*gate) + " is not what qwen35 computes (swish)");
  if (config.get_bool("attention_bias").value_or(false))
    config.refuse("attention_bias", "true: this architecture has no biases");
  const auto u32 = [&](const char* key, int64_t value) {
    set_u32(metadata, std::string("qwen35.") + key, value);
  };
  u32("ssm.conv_kernel", sizes.conv_taps);
  u32("ssm.state_size", sizes.state_dim);
  u32("ssm.group_count", sizes.n_k_heads);
  u32("ssm.time_step_rank", sizes.n_v_heads);
  u32("ssm.inner_size", sizes.n_v_heads * sizes.state_dim);

  // A regular list of kinds is an interval; any other is written out.
  int64_t interval = 0;
  for (size_t i = 0; i < sizes.recurrent.size() && interval == 0; ++i) {
    if (!sizes.recurrent[i]) interval = static_cast<int64_t>(i) + 1;
  }
  if (interval == 0) interval = std::max(stated_interval(config), sizes.n_layers + 1);
  bool regular = true;
  for (size_t i = 0; i < sizes.recurrent.size(); ++i)
    regular = regular && sizes.recurrent[i] == ((static_cast<int64_t>(i) + 1) % interval != 0);
  if (regular)
    u32("full_attention_interval", interval);
  else
    metadata.set(
        "qwen35.attention.recurrent_layers",
        MetadataValue{MetadataType::kArray, MetadataArray{MetadataType::kBool, sizes.recurrent}});

  const HfRope rope = read_hf_rope(config, "full_attention", kQwen35Family.default_rope_base);
  const int64_t n_rot = rotated_elements(config, sizes, rope);
  u32("rope.dimension_count", n_rot);
  metadata.set("qwen35.rope.dimension_sections",
               MetadataValue::i32_array(rotary_sections(config, rope, n_rot)));
}

}  // namespace

// No default base of the rotary embedding: a checkpoint must state it.
const HfFamily kQwen35Family{"qwen35",
                             kGlobalRulesOfShiftedNorms,
                             kAttentionLayer,
                             32768,
                             256,
                             0,
                             4,
                             0.0,
                             false,
                             "silu",
                             write_metadata,
                             kRecurrentLayer,
                             true,
                             read_sizes};

}  // namespace ts
