#include "convert/hf_rope.h"

#include <cmath>
#include <numbers>

#include <fmt/format.h>

namespace ts {
namespace {

/// Larger than any model's; keeps powers and products finite.
constexpr double kMaxBase = 1e15;
constexpr double kMaxFactor = 1e6;

double positive(const HfConfig& config, const HfRope& rope, std::string_view key, double fallback,
                double max) {
  const double value = config.number_in(rope.settings, rope.where, key).value_or(fallback);
  if (!(value > 0 && value <= max))
    config.fail(rope.where + std::string(key),
                fmt::format("found {}, expected a number above 0, at most {}", value, max));
  return value;
}

double required_factor(const HfConfig& config, const HfRope& rope) {
  if (member(rope.settings, "factor") == nullptr)
    config.fail(rope.where + "factor", "missing, but type " + rope.type + " needs it");
  return positive(config, rope, "factor", 1, kMaxFactor);
}

void write_yarn(const HfConfig& config, const HfRope& rope, const std::string& prefix,
                Metadata& metadata, std::vector<std::string>& notes) {
  for (const char* key : {"mscale", "mscale_all_dim"}) {
    if (member(rope.settings, key) != nullptr)
      config.refuse(rope.where + key, "this YaRN setting has no counterpart in GGUF");
  }
  if (const nlohmann::json* truncate = member(rope.settings, "truncate");
      truncate != nullptr && *truncate != true)
    config.refuse(rope.where + "truncate", "only true can be expressed in GGUF");

  const double factor = required_factor(config, rope);
  const int64_t longest = config.get_int("max_position_embeddings", 1, INT64_MAX).value_or(0);
  const double original = positive(config, rope, "original_max_position_embeddings",
                                   longest > 0 ? static_cast<double>(longest) : 1.0, 4e9);
  if (longest > 0 && member(rope.settings, "original_max_position_embeddings") != nullptr &&
      std::abs(static_cast<double>(longest) / original - factor) > 1e-6 * factor)
    notes.push_back(
        fmt::format("{}factor is {}, max_position_embeddings / original is {}; the factor is used",
                    rope.where, factor, static_cast<double>(longest) / original));
  metadata.set(prefix + "type", MetadataValue::string("yarn"));
  metadata.set(prefix + "factor", MetadataValue::f32(static_cast<float>(factor)));
  metadata.set(prefix + "original_context_length",
               MetadataValue::u32(static_cast<uint32_t>(original)));
  for (const char* beta : {"beta_fast", "beta_slow"}) {
    if (member(rope.settings, beta) != nullptr)
      metadata.set(prefix + "yarn_" + beta,
                   MetadataValue::f32(static_cast<float>(positive(config, rope, beta, 1, 1e6))));
  }
  // Checkpoints state the whole factor of cos and sin; in GGUF the usual 1 + 0.1 ln(factor) is
  // implied and the key multiplies it.
  if (member(rope.settings, "attention_factor") != nullptr) {
    const double whole = positive(config, rope, "attention_factor", 1, 1e6);
    metadata.set(prefix + "attn_factor",
                 MetadataValue::f32(static_cast<float>(whole / (1.0 + 0.1 * std::log(factor)))));
  }
}

}  // namespace

HfRope read_hf_rope(const HfConfig& config, std::string_view layer_kind, double default_base) {
  HfRope rope;
  const nlohmann::json* dictionary = config.find("rope_parameters");
  rope.where = "rope_parameters.";
  const bool local = layer_kind == "sliding_attention";
  if (dictionary != nullptr &&
      (dictionary->contains("full_attention") || dictionary->contains("sliding_attention"))) {
    dictionary = member(*dictionary, layer_kind);
    if (dictionary == nullptr)
      config.fail("rope_parameters", fmt::format("has no entry {}", layer_kind));
    rope.where += std::string(layer_kind) + ".";
  } else if (local) {
    // The flat forms scale the global layers only.
    rope.base = config.get_number("rope_local_base_freq").value_or(default_base);
    dictionary = nullptr;
  } else if (dictionary == nullptr) {
    dictionary = config.find("rope_scaling");
    rope.where = "rope_scaling.";
  }
  if (dictionary != nullptr) {
    if (!dictionary->is_object())
      config.fail(rope.where.substr(0, rope.where.size() - 1),
                  "found " + show_json(*dictionary) + ", expected an object");
    rope.settings = *dictionary;
    auto type = config.string_in(rope.settings, rope.where, "rope_type");
    if (!type) type = config.string_in(rope.settings, rope.where, "type");
    rope.type = type.value_or("default");
    rope.base = config.number_in(rope.settings, rope.where, "rope_theta").value_or(0);
  }
  if (rope.base == 0) rope.base = config.get_number("rope_theta").value_or(default_base);
  if (!(rope.base > 1 && rope.base <= kMaxBase))
    config.fail("rope_theta", fmt::format("found {}, expected a number above 1, at most {}",
                                          rope.base, kMaxBase));
  rope.rotary_part = config.number_in(rope.settings, rope.where, "partial_rotary_factor");
  if (!rope.rotary_part) rope.rotary_part = config.get_number("partial_rotary_factor");
  return rope;
}

void write_rope_metadata(const HfConfig& config, const HfRope& rope,
                         const std::string& architecture, Metadata& metadata,
                         std::vector<std::string>& notes, bool partial_rotary) {
  if (!partial_rotary && rope.rotary_part.value_or(1.0) != 1.0)
    config.refuse("partial_rotary_factor",
                  fmt::format("{}: heads of this architecture turn as a whole", *rope.rotary_part));
  metadata.set(architecture + ".rope.freq_base", MetadataValue::f32(static_cast<float>(rope.base)));
  const std::string prefix = architecture + ".rope.scaling.";
  if (rope.type == "default") return;
  if (rope.type == "linear") {
    metadata.set(prefix + "type", MetadataValue::string("linear"));
    metadata.set(prefix + "factor",
                 MetadataValue::f32(static_cast<float>(required_factor(config, rope))));
  } else if (rope.type == "yarn") {
    write_yarn(config, rope, prefix, metadata, notes);
  } else if (rope.type == "dynamic") {
    notes.push_back(
        "rotary scaling of type dynamic equals none up to the model's context length and is "
        "converted as none");
  } else if (rope.type != "llama3" || architecture != "llama") {
    config.refuse(
        rope.where + "rope_type",
        fmt::format("{} is not supported for {}; known are default, linear, yarn, dynamic "
                    "and, for llama, llama3",
                    rope.type, architecture));
  }
}

std::vector<float> llama3_rope_factors(const HfConfig& config, const HfRope& rope,
                                       int64_t head_dim) {
  for (const char* key :
       {"factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"}) {
    if (member(rope.settings, key) == nullptr)
      config.fail(rope.where + key, "missing, but type llama3 needs it");
  }
  const double factor = positive(config, rope, "factor", 8, kMaxFactor);
  const double low = positive(config, rope, "low_freq_factor", 1, kMaxFactor);
  const double high = positive(config, rope, "high_freq_factor", 4, kMaxFactor);
  const double context = positive(config, rope, "original_max_position_embeddings", 8192, 4e9);
  if (high <= low)
    config.fail(rope.where + "high_freq_factor",
                fmt::format("found {}, expected more than low_freq_factor = {}", high, low));
  std::vector<float> factors;
  for (int64_t j = 0; j < head_dim / 2; ++j) {
    const double wavelength =
        2.0 * std::numbers::pi *
        std::pow(rope.base, 2.0 * static_cast<double>(j) / static_cast<double>(head_dim));
    double value = 1;
    if (wavelength > context / low) {
      value = factor;
    } else if (wavelength >= context / high) {
      const double smooth = (context / wavelength - low) / (high - low);
      value = 1.0 / ((1.0 - smooth) / factor + smooth);
    }
    factors.push_back(static_cast<float>(value));
  }
  return factors;
}

}  // namespace ts
