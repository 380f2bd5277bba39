/// qwen35: the dense hybrids of Qwen 3.5 and later, and models derived from them. Most layers are
/// gated delta nets; every few layers one has full attention with per-head norms, rotary embedding
/// of a part of the head and a gate on its output. The norm before the feed-forward bears the name
/// post_attention_norm.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include <tensorsharp/error.hpp>

#include "base/log.h"
#include "model/arch/registry.h"
#include "model/blocks.h"
#include "model/gated_delta_net.h"
#include "model/size_limits.h"

namespace ts {
namespace {

constexpr int64_t kDefaultInterval = 4;

/// What the metadata says about the kinds of layers.
struct LayerKinds {
  std::vector<bool> recurrent;  ///< one per layer, or empty: the tensors or the interval decide
  int64_t interval = kDefaultInterval;  ///< every interval-th layer has full attention
};

class Qwen35Model : public DecoderModel {
 public:
  Qwen35Model(ModelConfig config, LayerKinds kinds, int64_t n_blocks)
      : DecoderModel(std::move(config)),
        kinds_(std::move(kinds)),
        n_blocks_(n_blocks),
        rope_(make_rope(config_.rope)) {}

 protected:
  void load_layers(TensorLoader& loader) override {
    skip_prediction_blocks(loader);
    decide_kinds(loader);
    AttentionTensors tensors;
    tensors.head_norms = true;
    tensors.output_gate = true;
    for (int64_t i = 0; i < config_.n_layers; ++i) {
      const LayerShape& shape = config_.layers[static_cast<size_t>(i)];
      Layer layer;
      layer.prefix = fmt::format("blk.{}.", i);
      layer.attention_norm = loader.vector(layer.prefix + "attn_norm.weight", config_.d_model);
      if (shape.recurrent)
        layer.delta_net = load_gated_delta_net(loader, layer.prefix, config_);
      else
        layer.attention = load_attention(loader, layer.prefix, config_, shape, tensors);
      layer.feed_forward_norm =
          loader.vector(layer.prefix + "post_attention_norm.weight", config_.d_model);
      layer.feed_forward = load_feed_forward(loader, layer.prefix, config_, shape);
      layers_.push_back(std::move(layer));
    }
  }

  void run_layer(Pass& pass, int64_t index) const override {
    const Layer& layer = layers_[static_cast<size_t>(index)];
    const LayerShape& shape = config_.layers[static_cast<size_t>(index)];
    run_norm(pass, layer.attention_norm, config_.norm_eps);
    if (shape.recurrent) {
      run_gated_delta_net(pass, index, layer.prefix, layer.delta_net, config_);
    } else {
      AttentionOptions options;
      options.shape = shape;
      options.head_dim = config_.head_dim;
      options.scale = config_.attention_scale;
      options.norm_eps = config_.norm_eps;
      options.rope = &rope_;
      options.output_gate = true;
      run_attention(pass, index, layer.prefix, layer.attention, options);
    }
    pass.backend.add(pass.x, pass.branch);
    run_norm(pass, layer.feed_forward_norm, config_.norm_eps);
    run_feed_forward(pass, layer.prefix, layer.feed_forward, GatedUnit::kSilu, shape.d_ff);
    pass.backend.add(pass.x, pass.branch);
    pass.note(layer.prefix, "output", pass.x);
  }

 private:
  struct Layer {
    std::string prefix;
    std::vector<float> attention_norm, feed_forward_norm;
    AttentionWeights attention;      // of a layer with full attention
    GatedDeltaNetWeights delta_net;  // of the others
    FeedForwardWeights feed_forward;
  };

  /// Blocks after the trunk guess further tokens ahead; the model's own output needs none of them.
  /// Files made by early converters have them without the key that counts them.
  void skip_prediction_blocks(TensorLoader& loader) {
    while (config_.n_layers > 1 &&
           loader.has(fmt::format("blk.{}.nextn.eh_proj.weight", config_.n_layers - 1)))
      --config_.n_layers;
    config_.layers.resize(static_cast<size_t>(config_.n_layers));
    size_t n_skipped = 0;
    for (int64_t i = config_.n_layers; i < n_blocks_; ++i) {
      const size_t count = loader.skip(fmt::format("blk.{}.", i));
      // A layer of the trunk must not be taken for such a block because a key miscounts.
      if (count > 0 && !loader.has(fmt::format("blk.{}.nextn.eh_proj.weight", i)))
        throw FormatError(
            fmt::format("{}: blk.{} is a multi-token prediction block according to "
                        "{}.nextn_predict_layers and block_count = {}, but has no "
                        "nextn.eh_proj.weight; the file was converted wrongly",
                        loader.source(), i, config_.architecture, n_blocks_));
      n_skipped += count;
    }
    if (n_skipped > 0 && loader.loading())
      log_info(
          fmt::format("{}: {} tensors for multi-token prediction (from blk.{} on) are not used",
                      loader.source(), n_skipped, config_.n_layers));
  }

  void decide_kinds(const TensorLoader& loader) {
    // Any of these names a recurrent layer, so that a missing one is reported as missing.
    const auto looks_recurrent = [&](int64_t i) {
      for (const char* name : {"ssm_conv1d.weight", "ssm_a", "ssm_dt.bias", "ssm_out.weight"}) {
        if (loader.has(fmt::format("blk.{}.{}", i, name))) return true;
      }
      return false;
    };
    std::vector<bool> recurrent = kinds_.recurrent;
    if (recurrent.empty()) {
      for (int64_t i = 0; i < config_.n_layers; ++i)
        recurrent.push_back(looks_recurrent(i));
      if (std::find(recurrent.begin(), recurrent.end(), true) == recurrent.end()) {
        for (int64_t i = 0; i < config_.n_layers; ++i)
          recurrent[static_cast<size_t>(i)] = (i + 1) % kinds_.interval != 0;
      }
    }
    for (size_t i = 0; i < config_.layers.size(); ++i) {
      LayerShape& shape = config_.layers[i];
      shape.recurrent = recurrent[i];
      if (!shape.recurrent && shape.n_kv_heads == 0)
        throw FormatError(
            fmt::format("{}: {}.attention.head_count_kv is 0 in layer {}, which has full attention",
                        loader.source(), config_.architecture, i));
    }
  }

  LayerKinds kinds_;
  int64_t n_blocks_;
  Rope rope_;
  std::vector<Layer> layers_;
};

/// `n_blocks` counts all blocks of the file, `n_trunk` those of the model itself.
LayerKinds read_layer_kinds(const ConfigReader& reader, const ModelConfig& config, int64_t n_blocks,
                            int64_t n_trunk) {
  LayerKinds kinds;
  kinds.interval = reader.int_or("full_attention_interval", kDefaultInterval, 1, kMaxLayerPeriod);
  constexpr std::string_view kKey = "attention.recurrent_layers";
  if (reader.has(kKey)) {
    auto list = reader.metadata().get_bools(reader.key(kKey));
    const auto count = static_cast<int64_t>(list ? list->size() : 0);
    if (count != n_blocks && count != n_trunk)
      reader.fail(kKey, fmt::format("found an array of {} booleans, expected one per layer ({})",
                                    count, n_blocks));
    kinds.recurrent = std::move(*list);
    kinds.recurrent.resize(static_cast<size_t>(n_trunk));
    return kinds;
  }
  // No key heads: no attention.
  if (std::any_of(config.layers.begin(), config.layers.end(),
                  [](const LayerShape& layer) { return layer.n_kv_heads == 0; })) {
    for (int64_t i = 0; i < n_trunk; ++i)
      kinds.recurrent.push_back(config.layers[static_cast<size_t>(i)].n_kv_heads == 0);
  }
  return kinds;
}

RecurrentShape read_recurrent_shape(const ConfigReader& reader) {
  RecurrentShape shape;
  shape.conv_kernel = reader.require_int("ssm.conv_kernel", 1, kMaxConvTaps);
  shape.head_dim = reader.require_int("ssm.state_size", 1, kMaxHeadDim);
  shape.n_k_heads = reader.require_int("ssm.group_count", 1, kMaxHeads);
  shape.n_v_heads = reader.require_int("ssm.time_step_rank", 1, kMaxHeads);
  if (shape.n_v_heads % shape.n_k_heads != 0)
    reader.fail("ssm.group_count",
                fmt::format("found {}, expected a divisor of time_step_rank = {}", shape.n_k_heads,
                            shape.n_v_heads));
  const int64_t inner = reader.require_int("ssm.inner_size", 1, int64_t{1} << 31);
  if (inner != shape.n_v_heads * shape.head_dim)
    reader.fail(
        "ssm.inner_size",
        fmt::format("found {}, expected time_step_rank x state_size = {} x {} (a value size "
                    "other than the key size is not supported)",
                    inner, shape.n_v_heads, shape.head_dim));
  shape.conv_channels = (2 * shape.n_k_heads + shape.n_v_heads) * shape.head_dim;
  return shape;
}

}  // namespace

std::unique_ptr<DecoderModel> create_qwen35(const ConfigReader& reader, int64_t n_vocab) {
  ModelConfig config = read_common_config(reader, n_vocab, 0);
  const int64_t n_blocks = config.n_layers;
  const int64_t n_prediction = reader.int_or("nextn_predict_layers", 0, 0, n_blocks - 1);
  config.n_layers = n_blocks - n_prediction;
  // The part of the head that turns has no default that could not be silently wrong.
  reader.require_int("rope.dimension_count", 2, config.head_dim);
  config.rope.half_split = true;
  config.recurrent = read_recurrent_shape(reader);
  config.attention_output_gate = true;
  LayerKinds kinds = read_layer_kinds(reader, config, n_blocks, config.n_layers);
  return std::make_unique<Qwen35Model>(std::move(config), std::move(kinds), n_blocks);
}

}  // namespace ts
