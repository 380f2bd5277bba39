/// gemma3 (text): norms before and after each half of a layer, per-head norms of queries and keys,
/// GELU feed-forward, and two kinds of layers: local ones see a sliding window and turn with a
/// small rotary base, global ones (every sixth by default) see everything.
/// The stored norm weights are final: converters have added the 1 of the checkpoints' (1 + w).
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "model/arch/registry.h"
#include "model/blocks.h"
#include "model/size_limits.h"

namespace ts {
namespace {

constexpr int64_t kDefaultPattern = 6;
/// The 27B model scales queries by d_model / n_heads instead of the head size; files do not say so,
/// its number of layers does.
constexpr int64_t kLayersOf27B = 62;

class Gemma3Model : public DecoderModel {
 public:
  Gemma3Model(ModelConfig config, std::vector<bool> is_local, int64_t window, double local_base)
      : DecoderModel(std::move(config)), is_local_(std::move(is_local)), window_(window) {
    embedding_scale_ = std::sqrt(static_cast<float>(config_.d_model));
    global_rope_ = make_rope(config_.rope);
    RopeParams local = config_.rope;
    local.base = local_base;
    local.scaling = RopeScaling::kNone;
    local.factor = 1.0;
    local_rope_ = make_rope(local);
  }

 protected:
  void load_layers(TensorLoader& loader) override {
    AttentionTensors tensors;
    tensors.head_norms = true;
    for (int64_t i = 0; i < config_.n_layers; ++i) {
      const LayerShape& shape = config_.layers[static_cast<size_t>(i)];
      const std::string prefix = fmt::format("blk.{}.", i);
      const int64_t d = config_.d_model;
      Layer layer;
      layer.prefix = prefix;
      layer.attention_norm = loader.vector(prefix + "attn_norm.weight", d);
      layer.attention = load_attention(loader, prefix, config_, shape, tensors);
      layer.post_attention_norm = loader.vector(prefix + "post_attention_norm.weight", d);
      layer.feed_forward_norm = loader.vector(prefix + "ffn_norm.weight", d);
      layer.feed_forward = load_feed_forward(loader, prefix, config_, shape);
      layer.post_feed_forward_norm = loader.vector(prefix + "post_ffw_norm.weight", d);
      layers_.push_back(std::move(layer));
    }
  }

  void run_layer(Pass& pass, int64_t index) const override {
    const auto i = static_cast<size_t>(index);
    const Layer& layer = layers_[i];
    AttentionOptions options;
    options.shape = config_.layers[i];
    options.head_dim = config_.head_dim;
    options.scale = config_.attention_scale;
    options.norm_eps = config_.norm_eps;
    options.window = is_local_[i] ? window_ : 0;
    options.rope = is_local_[i] ? &local_rope_ : &global_rope_;

    run_norm(pass, layer.attention_norm, config_.norm_eps);
    run_attention(pass, index, layer.prefix, layer.attention, options);
    add_normed(pass, layer.post_attention_norm);
    run_norm(pass, layer.feed_forward_norm, config_.norm_eps);
    run_feed_forward(pass, layer.prefix, layer.feed_forward, GatedUnit::kGeluTanh,
                     options.shape.d_ff);
    add_normed(pass, layer.post_feed_forward_norm);
    pass.note(layer.prefix, "output", pass.x);
  }

 private:
  struct Layer {
    std::string prefix;
    std::vector<float> attention_norm, post_attention_norm, feed_forward_norm,
        post_feed_forward_norm;
    AttentionWeights attention;
    FeedForwardWeights feed_forward;
  };

  /// x += rms_norm(branch) * weight.
  void add_normed(Pass& pass, const std::vector<float>& weight) const {
    pass.backend.rms_norm(pass.branch, weight.data(), config_.d_model, config_.norm_eps,
                          pass.branch);
    pass.backend.add(pass.x, pass.branch);
  }

  std::vector<bool> is_local_;
  int64_t window_;
  Rope global_rope_, local_rope_;
  std::vector<Layer> layers_;
};

/// Which layers are local. The key holds the period (every period-th layer is global) or one
/// boolean per layer.
std::vector<bool> read_pattern(const ConfigReader& reader, int64_t n_layers) {
  constexpr std::string_view kKey = "attention.sliding_window_pattern";
  const MetadataValue* value = reader.metadata().find(reader.key(kKey));
  if (value != nullptr && value->type == MetadataType::kArray) {
    auto list = reader.metadata().get_bools(reader.key(kKey));
    if (!list || static_cast<int64_t>(list->size()) != n_layers)
      reader.fail(kKey, fmt::format("found an array of {} values, expected one per layer ({})",
                                    list ? list->size() : 0, n_layers));
    return std::move(*list);
  }
  const int64_t period = reader.int_or(kKey, kDefaultPattern, 1, kMaxLayerPeriod);
  std::vector<bool> is_local;
  for (int64_t i = 0; i < n_layers; ++i)
    is_local.push_back(i % period < period - 1);
  return is_local;
}

}  // namespace

std::unique_ptr<DecoderModel> create_gemma3(const ConfigReader& reader, int64_t n_vocab) {
  ModelConfig config = read_common_config(reader, n_vocab);
  config.rope.half_split = true;
  config.logit_softcap =
      static_cast<float>(reader.float_or("final_logit_softcapping", 0.0, 0.0, 1e9));
  if (config.n_layers == kLayersOf27B && !reader.has("attention.scale")) {
    config.attention_scale =
        static_cast<float>(1.0 / std::sqrt(static_cast<double>(config.d_model) /
                                           static_cast<double>(config.layers[0].n_heads)));
  }
  const int64_t window = reader.int_or("attention.sliding_window", 0, 0, INT64_MAX);
  auto is_local = read_pattern(reader, config.n_layers);
  if (window == 0) is_local.assign(is_local.size(), false);
  const double local_base = reader.float_or("rope.freq_base_swa", 10000.0, 1.0 + 1e-6, 1e15);
  return std::make_unique<Gemma3Model>(std::move(config), std::move(is_local), window, local_base);
}

}  // namespace ts
