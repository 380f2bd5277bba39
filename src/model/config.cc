#include "model/config.h"

#include <cmath>
#include <utility>

#include <fmt/format.h>

#include <tensorsharp/error.hpp>

#include "model/effective_settings.h"
#include "model/size_limits.h"

namespace ts {

std::string ConfigReader::key(std::string_view suffix) const {
  return fmt::format("{}.{}", architecture_, suffix);
}

void ConfigReader::fail(std::string_view suffix, const std::string& what) const {
  throw FormatError(fmt::format("{}: {}: {}", metadata_.source(), key(suffix), what));
}

int64_t ConfigReader::require_int(std::string_view suffix, int64_t min, int64_t max) const {
  const auto value = metadata_.get_int(key(suffix), min, max);
  if (!value) fail(suffix, fmt::format("missing, expected an integer from {} to {}", min, max));
  return *value;
}

int64_t ConfigReader::int_or(std::string_view suffix, int64_t fallback, int64_t min,
                             int64_t max) const {
  return metadata_.get_int(key(suffix), min, max).value_or(fallback);
}

double ConfigReader::require_float(std::string_view suffix, double min, double max) const {
  const auto value = metadata_.get_float(key(suffix));
  if (!value) fail(suffix, fmt::format("missing, expected a number from {} to {}", min, max));
  if (!(*value >= min && *value <= max))
    fail(suffix, fmt::format("found {}, expected a number from {} to {}", *value, min, max));
  return *value;
}

double ConfigReader::float_or(std::string_view suffix, double fallback, double min,
                              double max) const {
  return has(suffix) ? require_float(suffix, min, max) : fallback;
}

std::string ConfigReader::string_or(std::string_view suffix, std::string fallback) const {
  auto value = metadata_.get_string(key(suffix));
  return value ? std::move(*value) : std::move(fallback);
}

std::vector<int64_t> ConfigReader::per_layer(std::string_view suffix, int64_t n_layers, int64_t min,
                                             int64_t max,
                                             const std::vector<int64_t>& fallback) const {
  const MetadataValue* value = metadata_.find(key(suffix));
  if (value == nullptr) {
    if (fallback.empty()) fail(suffix, "missing, expected an integer or one integer per layer");
    return fallback;
  }
  const auto count = static_cast<size_t>(n_layers);
  if (value->type != MetadataType::kArray)
    return std::vector<int64_t>(count, require_int(suffix, min, max));
  auto list = metadata_.get_ints(key(suffix), min, max);
  if (!list || list->size() != count)
    fail(suffix, fmt::format("found an array of {} values, expected one per layer ({})",
                             list ? list->size() : 0, n_layers));
  return std::move(*list);
}

ModelConfig read_common_config(const ConfigReader& reader, int64_t n_vocab, int64_t min_kv_heads) {
  ModelConfig c;
  c.architecture = reader.architecture();
  if (const int64_t experts = reader.int_or("expert_count", 0, 0, INT64_MAX); experts > 0)
    throw Unsupported(
        fmt::format("{}: {} = {}: mixture-of-experts models of this architecture are not "
                    "supported; use a dense model",
                    reader.metadata().source(), reader.key("expert_count"), experts));
  c.n_layers = reader.require_int("block_count", 1, kMaxLayers);
  c.d_model = reader.require_int("embedding_length", 1, kMaxWidth);
  c.context_length = reader.require_int("context_length", 1, kMaxContext);
  // Smaller than any real model uses, but a zero would divide by zero on an all-zero row.
  c.norm_eps =
      static_cast<float>(reader.require_float("attention.layer_norm_rms_epsilon", 1e-30, 1.0));

  const auto heads = reader.per_layer("attention.head_count", c.n_layers, 1, kMaxHeads);
  const auto kv_heads =
      reader.per_layer("attention.head_count_kv", c.n_layers, min_kv_heads, kMaxHeads, heads);
  const auto d_ff = reader.per_layer("feed_forward_length", c.n_layers, 1, kMaxWidth);
  for (size_t i = 0; i < heads.size(); ++i) {
    if (kv_heads[i] != 0 && heads[i] % kv_heads[i] != 0)
      reader.fail("attention.head_count_kv",
                  fmt::format("found {} in layer {}, expected a divisor of head_count = {}",
                              kv_heads[i], i, heads[i]));
    c.layers.push_back({heads[i], kv_heads[i], d_ff[i]});
  }

  if (!reader.has("attention.key_length") && c.d_model % heads[0] != 0)
    reader.fail("attention.head_count",
                fmt::format("found {}, which does not divide embedding_length = {} (and there is "
                            "no attention.key_length)",
                            heads[0], c.d_model));
  c.head_dim = reader.int_or("attention.key_length", c.d_model / heads[0], 2, kMaxHeadDim);
  if (c.head_dim < 2 || c.head_dim % 2 != 0)
    reader.fail("attention.key_length",
                fmt::format("the head size is {}, expected an even number", c.head_dim));
  const int64_t value_dim = reader.int_or("attention.value_length", c.head_dim, 1, kMaxHeadDim);
  if (value_dim != c.head_dim)
    throw Unsupported(fmt::format(
        "{}: {} = {}: a value size other than the key size ({}) is not "
        "supported",
        reader.metadata().source(), reader.key("attention.value_length"), value_dim, c.head_dim));
  const double scale = reader.float_or("attention.scale", 0.0, 0.0, 1e6);
  c.attention_scale =
      static_cast<float>(scale != 0.0 ? scale : 1.0 / std::sqrt(static_cast<double>(c.head_dim)));
  c.rope = read_rope_params(reader, c.head_dim, c.context_length);

  c.n_vocab = n_vocab;
  if (const auto* tokens = reader.metadata().get_strings("tokenizer.ggml.tokens");
      tokens != nullptr && static_cast<int64_t>(tokens->size()) != n_vocab)
    throw FormatError(
        fmt::format("{}: tokenizer.ggml.tokens has {} tokens, but token_embd.weight "
                    "has {} rows; the file is damaged or was converted wrongly",
                    reader.metadata().source(), tokens->size(), n_vocab));
  refuse_unknown_settings(reader, c);
  return c;
}

}  // namespace ts
