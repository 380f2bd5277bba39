/// llama (with Mistral), qwen2 and qwen3: attention and SwiGLU, one norm before each.
#include <fmt/format.h>

#include "convert/hf_family.h"

namespace ts {
namespace {

constexpr auto kSame = ValueChange::kAsIs;  // norms are stored as they are used
constexpr auto kOptional = Presence::kOptional;
constexpr auto kPairs = RowOrder::kLlamaPairs;
constexpr auto kAsIs = RowOrder::kAsIs;

constexpr TensorRule kGlobal[] = {
    {"model.embed_tokens.weight", "token_embd.weight", Dim::kVocab, Dim::kModel},
    {"model.norm.weight", "output_norm.weight", Dim::kModel},
    {"lm_head.weight", "output.weight", Dim::kVocab, Dim::kModel, kAsIs, kSame, kOptional},
    {"lm_head.bias", "output.bias", Dim::kVocab, Dim::kNone, kAsIs, kSame, kOptional},
};

constexpr TensorRule kLlamaLayer[] = {
    {"input_layernorm.weight", "attn_norm.weight", Dim::kModel},
    {"self_attn.q_proj.weight", "attn_q.weight", Dim::kQuery, Dim::kModel, kPairs},
    {"self_attn.q_proj.bias", "attn_q.bias", Dim::kQuery, Dim::kNone, kPairs, kSame, kOptional},
    {"self_attn.k_proj.weight", "attn_k.weight", Dim::kKey, Dim::kModel, kPairs},
    {"self_attn.k_proj.bias", "attn_k.bias", Dim::kKey, Dim::kNone, kPairs, kSame, kOptional},
    {"self_attn.v_proj.weight", "attn_v.weight", Dim::kKey, Dim::kModel},
    {"self_attn.v_proj.bias", "attn_v.bias", Dim::kKey, Dim::kNone, kAsIs, kSame, kOptional},
    {"self_attn.o_proj.weight", "attn_output.weight", Dim::kModel, Dim::kQuery},
    {"self_attn.o_proj.bias", "attn_output.bias", Dim::kModel, Dim::kNone, kAsIs, kSame, kOptional},
    {"post_attention_layernorm.weight", "ffn_norm.weight", Dim::kModel},
    {"mlp.gate_proj.weight", "ffn_gate.weight", Dim::kFf, Dim::kModel},
    {"mlp.gate_proj.bias", "ffn_gate.bias", Dim::kFf, Dim::kNone, kAsIs, kSame, kOptional},
    {"mlp.up_proj.weight", "ffn_up.weight", Dim::kFf, Dim::kModel},
    {"mlp.up_proj.bias", "ffn_up.bias", Dim::kFf, Dim::kNone, kAsIs, kSame, kOptional},
    {"mlp.down_proj.weight", "ffn_down.weight", Dim::kModel, Dim::kFf},
    {"mlp.down_proj.bias", "ffn_down.bias", Dim::kModel, Dim::kNone, kAsIs, kSame, kOptional},
};

constexpr TensorRule kQwen2Layer[] = {
    {"input_layernorm.weight", "attn_norm.weight", Dim::kModel},
    {"self_attn.q_proj.weight", "attn_q.weight", Dim::kQuery, Dim::kModel},
    {"self_attn.q_proj.bias", "attn_q.bias", Dim::kQuery},
    {"self_attn.k_proj.weight", "attn_k.weight", Dim::kKey, Dim::kModel},
    {"self_attn.k_proj.bias", "attn_k.bias", Dim::kKey},
    {"self_attn.v_proj.weight", "attn_v.weight", Dim::kKey, Dim::kModel},
    {"self_attn.v_proj.bias", "attn_v.bias", Dim::kKey},
    {"self_attn.o_proj.weight", "attn_output.weight", Dim::kModel, Dim::kQuery},
    {"post_attention_layernorm.weight", "ffn_norm.weight", Dim::kModel},
    {"mlp.gate_proj.weight", "ffn_gate.weight", Dim::kFf, Dim::kModel},
    {"mlp.up_proj.weight", "ffn_up.weight", Dim::kFf, Dim::kModel},
    {"mlp.down_proj.weight", "ffn_down.weight", Dim::kModel, Dim::kFf},
};

constexpr TensorRule kQwen3Layer[] = {
    {"input_layernorm.weight", "attn_norm.weight", Dim::kModel},
    {"self_attn.q_proj.weight", "attn_q.weight", Dim::kQuery, Dim::kModel},
    {"self_attn.k_proj.weight", "attn_k.weight", Dim::kKey, Dim::kModel},
    {"self_attn.v_proj.weight", "attn_v.weight", Dim::kKey, Dim::kModel},
    {"self_attn.o_proj.weight", "attn_output.weight", Dim::kModel, Dim::kQuery},
    {"self_attn.q_norm.weight", "attn_q_norm.weight", Dim::kHead},
    {"self_attn.k_norm.weight", "attn_k_norm.weight", Dim::kHead},
    {"post_attention_layernorm.weight", "ffn_norm.weight", Dim::kModel},
    {"mlp.gate_proj.weight", "ffn_gate.weight", Dim::kFf, Dim::kModel},
    {"mlp.up_proj.weight", "ffn_up.weight", Dim::kFf, Dim::kModel},
    {"mlp.down_proj.weight", "ffn_down.weight", Dim::kModel, Dim::kFf},
};

void check_llama(const HfConfig& config, const HfSizes& sizes, Metadata&,
                 std::vector<std::string>&) {
  // Mistral: the window is computed nowhere in this architecture.
  const auto window = config.get_int("sliding_window", 1, INT64_MAX);
  if (window && *window < sizes.context)
    config.refuse("sliding_window",
                  fmt::format("{} is smaller than the context of {}; llama has no sliding window",
                              *window, sizes.context));
}

void check_qwen(const HfConfig& config, const HfSizes&, Metadata&, std::vector<std::string>&) {
  // sliding_window and max_window_layers count only when use_sliding_window is set.
  if (config.get_bool("use_sliding_window").value_or(false))
    config.refuse("use_sliding_window", "true: sliding windows are not part of this architecture");
  const nlohmann::json* layers = config.find("layer_types");
  if (layers == nullptr) return;
  if (!layers->is_array()) config.fail("layer_types", "expected a list");
  for (const auto& layer : *layers) {
    if (layer != "full_attention")
      config.refuse("layer_types",
                    "found " + show_json(layer) + "; every layer must be full_attention");
  }
}

}  // namespace

const HfFamily kLlamaFamily{"llama", kGlobal, kLlamaLayer, 2048,   0,          0,
                            0,       10000.0, false,       "silu", check_llama};
const HfFamily kQwen2Family{"qwen2", kGlobal, kQwen2Layer, 32768,  0,         0,
                            32,      10000.0, false,       "silu", check_qwen};
const HfFamily kQwen3Family{"qwen3", kGlobal, kQwen3Layer, 32768,  128,       0,
                            32,      10000.0, false,       "silu", check_qwen};

}  // namespace ts
