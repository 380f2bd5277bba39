#include "convert/hf_family.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include <tensorsharp/error.hpp>

#include "base/quote_text.h"
#include "convert/hf_rope.h"
#include "model/size_limits.h"

namespace ts {
namespace {

struct ModelClass {
  std::string_view name;
  const HfFamily* family;
};
constexpr std::array kModelClasses{
    ModelClass{"LlamaForCausalLM", &kLlamaFamily},
    ModelClass{"MistralForCausalLM", &kLlamaFamily},
    ModelClass{"Qwen2ForCausalLM", &kQwen2Family},
    ModelClass{"Qwen3ForCausalLM", &kQwen3Family},
    ModelClass{"Gemma3ForCausalLM", &kGemma3Family},
    ModelClass{"Gemma3ForConditionalGeneration", &kGemma3Family},
    ModelClass{"Qwen3_5ForCausalLM", &kQwen35Family},
    ModelClass{"Qwen3_5ForConditionalGeneration", &kQwen35Family},
};

void refuse_common(const HfConfig& config, const HfFamily& family) {
  for (const char* key : {"num_local_experts", "num_experts", "n_routed_experts"}) {
    if (config.get_int(key, 0, INT64_MAX).value_or(0) > 0)
      config.refuse(key, fmt::format("mixture-of-experts checkpoints cannot be converted to {}",
                                     family.architecture));
  }
  for (const char* key : {"hidden_act", "hidden_activation"}) {
    const auto activation = config.get_string(key);
    if (activation && *activation != family.activation)
      config.refuse(key, fmt::format("{} is not what {} computes ({})", quote_text(*activation),
                                     family.architecture, family.activation));
  }
}

}  // namespace

int64_t HfSizes::of(Dim dim) const {
  switch (dim) {
    case Dim::kNone:
      return 1;
    case Dim::kModel:
      return d_model;
    case Dim::kFf:
      return d_ff;
    case Dim::kQuery:
      return n_heads * head_dim;
    case Dim::kKey:
      return n_kv_heads * head_dim;
    case Dim::kHead:
      return head_dim;
    case Dim::kVocab:
      return n_vocab;
    case Dim::kQueryGate:
      return 2 * n_heads * head_dim;
    case Dim::kChannels:
      return (2 * n_k_heads + n_v_heads) * state_dim;
    case Dim::kValues:
      return n_v_heads * state_dim;
    case Dim::kValueHeads:
      return n_v_heads;
    case Dim::kState:
      return state_dim;
    case Dim::kTaps:
      return conv_taps;
  }
  throw InternalError("unknown dimension of a tensor rule");
}

const HfFamily& require_family(const HfConfig& config) {
  std::string known;
  for (const ModelClass& row : kModelClasses) {
    if (row.name == config.model_class()) return *row.family;
    known += (known.empty() ? "" : ", ") + std::string(row.name);
  }
  throw Unsupported(fmt::format("{}: architectures: {} cannot be converted\nknown: {}",
                                config.source(), quote_text(config.model_class()), known));
}

HfSizes read_hf_sizes(const HfConfig& config, const HfFamily& family) {
  HfSizes s;
  s.n_layers = config.require_int("num_hidden_layers", 1, kMaxLayers);
  s.d_model = config.require_int("hidden_size", 1, kMaxWidth);
  s.d_ff = config.require_int("intermediate_size", 1, kMaxWidth);
  s.n_heads =
      family.default_heads == 0
          ? config.require_int("num_attention_heads", 1, kMaxHeads)
          : config.get_int("num_attention_heads", 1, kMaxHeads).value_or(family.default_heads);
  const bool kv_is_null = config.is_null("num_key_value_heads");
  s.n_kv_heads =
      config.get_int("num_key_value_heads", 1, kMaxHeads)
          .value_or(family.default_kv_heads == 0 || kv_is_null ? s.n_heads
                                                               : family.default_kv_heads);
  if (s.n_heads % s.n_kv_heads != 0)
    config.fail("num_key_value_heads", fmt::format("found {}, expected a divisor of the {} heads",
                                                   s.n_kv_heads, s.n_heads));
  const auto head_dim = config.get_int("head_dim", 1, kMaxHeadDim);
  if (!head_dim && family.default_head_dim == 0 && s.d_model % s.n_heads != 0)
    config.fail(
        "num_attention_heads",
        fmt::format("found {}, which does not divide hidden_size = {}", s.n_heads, s.d_model));
  s.head_dim = head_dim.value_or(family.default_head_dim != 0 ? family.default_head_dim
                                                              : s.d_model / s.n_heads);
  if (s.head_dim % 2 != 0)
    config.fail("head_dim", fmt::format("{} is odd; rotary embedding needs pairs", s.head_dim));
  s.context =
      config.get_int("max_position_embeddings", 1, kMaxContext).value_or(family.default_context);
  if (family.read_sizes != nullptr) family.read_sizes(config, s);
  return s;
}

const nlohmann::json* find_layer_types(const HfConfig& config, const HfSizes& sizes) {
  const nlohmann::json* list = config.find("layer_types");
  if (list != nullptr && (!list->is_array() || list->size() != static_cast<size_t>(sizes.n_layers)))
    config.fail("layer_types", fmt::format("expected a list of one kind for each of the {} layers",
                                           sizes.n_layers));
  return list;
}

void set_u32(Metadata& metadata, const std::string& key, int64_t value) {
  metadata.set(key, MetadataValue::u32(static_cast<uint32_t>(value)));
}

bool is_tied(const HfConfig& config, const HfFamily& family) {
  return config.get_bool("tie_word_embeddings").value_or(family.default_tied);
}

void write_hf_metadata(const HfConfig& config, const HfFamily& family, const HfSizes& sizes,
                       Metadata& metadata, std::vector<std::string>& notes) {
  refuse_common(config, family);
  const std::string a(family.architecture);
  set_u32(metadata, a + ".block_count", sizes.n_layers);
  set_u32(metadata, a + ".context_length", sizes.context);
  set_u32(metadata, a + ".embedding_length", sizes.d_model);
  set_u32(metadata, a + ".feed_forward_length", sizes.d_ff);
  set_u32(metadata, a + ".attention.head_count", sizes.n_heads);
  set_u32(metadata, a + ".attention.head_count_kv", sizes.n_kv_heads);
  set_u32(metadata, a + ".attention.key_length", sizes.head_dim);
  set_u32(metadata, a + ".attention.value_length", sizes.head_dim);
  const double epsilon = config.get_number("rms_norm_eps").value_or(1e-6);
  if (!(epsilon > 0 && epsilon < 1))
    config.fail("rms_norm_eps",
                fmt::format("found {}, expected a number between 0 and 1", epsilon));
  metadata.set(a + ".attention.layer_norm_rms_epsilon",
               MetadataValue::f32(static_cast<float>(epsilon)));
  set_u32(metadata, a + ".vocab_size", sizes.n_vocab);
  set_u32(metadata, a + ".rope.dimension_count", sizes.head_dim);
  const HfRope rope = read_hf_rope(config, "full_attention", family.default_rope_base);
  write_rope_metadata(config, rope, a, metadata, notes, family.partial_rotary);
  if (family.write_metadata != nullptr) family.write_metadata(config, sizes, metadata, notes);
}

}  // namespace ts
