#include "model/effective_settings.h"

#include <cmath>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include <tensorsharp/error.hpp>

namespace ts {
namespace {

struct NumberSetting {
  std::string_view suffix;
  /// Besides 0, which stands for "not set": the value that changes nothing.
  double neutral;
  std::string_view computed_by;  ///< the architecture that has it; empty = none
};
constexpr NumberSetting kNumbers[] = {
    {"logit_scale", 1, ""},
    {"residual_scale", 1, ""},
    {"attention.output_scale", 1, ""},
    {"attn_logit_softcapping", 0, ""},
    {"router_logit_softcapping", 0, ""},
    {"final_logit_softcapping", 0, "gemma3"},
    {"attention.max_alibi_bias", 0, ""},
    {"attention.clamp_kqv", 0, ""},
    {"attention.temperature_length", 0, ""},
    {"attention.temperature_scale", 0, ""},
    {"attention.q_lora_rank", 0, ""},
    {"attention.kv_lora_rank", 0, ""},
    {"attention.shared_kv_layers", 0, ""},
    {"rescale_every_n_layers", 0, ""},
    {"expert_used_count", 0, ""},
    {"expert_shared_count", 0, ""},
    {"expert_feed_forward_length", 0, ""},
    {"expert_shared_feed_forward_length", 0, ""},
    {"leading_dense_block_count", 0, ""},
    {"moe_every_n_layers", 0, ""},
    {"interleave_moe_layer_step", 0, ""},
    {"nextn_predict_layers", 0, "qwen35"},
    {"rope.scaling.yarn_log_multiplier", 0, ""},
    {"rope.scaling.yarn_attn_factor", 1, ""},
};

struct FlagSetting {
  std::string_view suffix;
  bool neutral;
};
constexpr FlagSetting kFlags[] = {
    {"attention.causal", true},
    {"use_parallel_residual", false},
    {"swin_norm", false},
};

[[noreturn]] void refuse(const ConfigReader& reader, std::string_view suffix,
                         const std::string& value) {
  throw Unsupported(fmt::format(
      "{}: {} = {}: this version does not compute that for architecture {}; running the "
      "file without it would give wrong results",
      reader.metadata().source(), reader.key(suffix), value, reader.architecture()));
}

double number_or(const ConfigReader& reader, std::string_view suffix, double fallback) {
  return reader.metadata().get_float(reader.key(suffix)).value_or(fallback);
}

}  // namespace

void refuse_unknown_settings(const ConfigReader& reader, const ModelConfig& config) {
  const std::string& architecture = reader.architecture();
  for (const NumberSetting& setting : kNumbers) {
    if (setting.computed_by == architecture) continue;
    const double value = number_or(reader, setting.suffix, 0);
    if (value != 0 && value != setting.neutral)
      refuse(reader, setting.suffix, fmt::format("{}", value));
  }
  for (const FlagSetting& setting : kFlags) {
    const bool value =
        reader.metadata().get_bool(reader.key(setting.suffix)).value_or(setting.neutral);
    if (value != setting.neutral) refuse(reader, setting.suffix, value ? "true" : "false");
  }

  // gemma3 multiplies embeddings by a factor of its own, which the key may state.
  const double own_scale =
      architecture == "gemma3" ? std::sqrt(static_cast<double>(config.d_model)) : 1.0;
  if (const double scale = number_or(reader, "embedding_scale", 0);
      scale != 0 && std::abs(scale - own_scale) > 1e-4 * own_scale)
    refuse(reader, "embedding_scale", fmt::format("{}", scale));

  // A window that holds the whole context hides nothing.
  if (architecture != "gemma3") {
    const int64_t window = reader.int_or("attention.sliding_window", 0, 0, INT64_MAX);
    if (window != 0 && window < config.context_length)
      refuse(reader, "attention.sliding_window", fmt::format("{}", window));
  }
  for (const std::string_view suffix : {"attention.key_length_swa", "attention.value_length_swa"}) {
    const int64_t length = reader.int_or(suffix, config.head_dim, 0, INT64_MAX);
    if (length != config.head_dim) refuse(reader, suffix, fmt::format("{}", length));
  }
  // Only YaRN scales cos and sin; a negative extrapolation factor means "as usual".
  if (config.rope.scaling != RopeScaling::kYarn) {
    const double factor = number_or(reader, "rope.scaling.attn_factor", 1);
    if (factor != 0 && factor != 1)
      refuse(reader, "rope.scaling.attn_factor", fmt::format("{}", factor));
  }
  if (const double mix = number_or(reader, "rope.scaling.yarn_ext_factor", -1);
      mix >= 0 && mix != (config.rope.scaling == RopeScaling::kYarn ? 1.0 : 0.0))
    refuse(reader, "rope.scaling.yarn_ext_factor", fmt::format("{}", mix));

  const int64_t n_vocab = reader.int_or("vocab_size", config.n_vocab, 0, INT64_MAX);
  if (n_vocab != config.n_vocab)
    reader.fail("vocab_size",
                fmt::format("found {}, but token_embd.weight has {} rows; the file is "
                            "damaged or was converted wrongly",
                            n_vocab, config.n_vocab));
}

}  // namespace ts
