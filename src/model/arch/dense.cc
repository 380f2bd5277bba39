#include "model/arch/dense.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include <tensorsharp/error.hpp>

namespace ts {

DenseModel::DenseModel(ModelConfig config, const DenseTensors& tensors)
    : DecoderModel(std::move(config)), tensors_(tensors) {
  output_bias_ = tensors.output_bias;
}

void DenseModel::load_layers(TensorLoader& loader) {
  // Llama 3.1 and later divide each frequency by a factor that the file states.
  const auto factors = loader.optional_vector("rope_freqs.weight", config_.rope.n_rot / 2);
  if (std::any_of(factors.begin(), factors.end(), [](float f) { return !(f > 0); }))
    throw FormatError(
        fmt::format("{}: tensor rope_freqs.weight holds a value that is not positive; "
                    "the file is damaged, download or convert it again",
                    loader.source()));
  rope_ = make_rope(config_.rope, factors);
  for (int64_t i = 0; i < config_.n_layers; ++i) {
    const LayerShape& shape = config_.layers[static_cast<size_t>(i)];
    Layer layer;
    layer.prefix = fmt::format("blk.{}.", i);
    layer.attention_norm = loader.vector(layer.prefix + "attn_norm.weight", config_.d_model);
    layer.attention = load_attention(loader, layer.prefix, config_, shape, tensors_.attention);
    layer.feed_forward_norm = loader.vector(layer.prefix + "ffn_norm.weight", config_.d_model);
    layer.feed_forward =
        load_feed_forward(loader, layer.prefix, config_, shape, tensors_.feed_forward_bias);
    layers_.push_back(std::move(layer));
  }
}

void DenseModel::run_layer(Pass& pass, int64_t index) const {
  const Layer& layer = layers_[static_cast<size_t>(index)];
  AttentionOptions options;
  options.shape = config_.layers[static_cast<size_t>(index)];
  options.head_dim = config_.head_dim;
  options.scale = config_.attention_scale;
  options.norm_eps = config_.norm_eps;
  options.rope = &rope_;

  run_norm(pass, layer.attention_norm, config_.norm_eps);
  run_attention(pass, index, layer.prefix, layer.attention, options);
  pass.backend.add(pass.x, pass.branch);
  run_norm(pass, layer.feed_forward_norm, config_.norm_eps);
  run_feed_forward(pass, layer.prefix, layer.feed_forward, GatedUnit::kSilu, options.shape.d_ff);
  pass.backend.add(pass.x, pass.branch);
  pass.note(layer.prefix, "output", pass.x);
}

}  // namespace ts
