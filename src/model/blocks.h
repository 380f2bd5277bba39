/// The two halves of a transformer layer as the dense families share them: attention with grouped
/// keys, and the gated feed-forward. Families choose norms, pairing, windows and units.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/decoder.h"

namespace ts {

struct AttentionWeights {
  Linear q, k, v, output;
  std::vector<float> q_norm, k_norm;  ///< [head_dim] per-head norms; empty = none
};

struct AttentionOptions {
  LayerShape shape;
  int64_t head_dim = 0;
  float scale = 1.0F;
  float norm_eps = 0;  ///< of the per-head norms
  int64_t window = 0;  ///< 0 = all earlier positions
  const Rope* rope = nullptr;
  /// w.q gives [query | gate] per head; the output is multiplied with sigmoid(gate).
  bool output_gate = false;
};

struct FeedForwardWeights {
  Linear gate, up, down;
};

/// Which optional tensors attention has in a family.
struct AttentionTensors {
  Bias qkv_bias = Bias::kNone, output_bias = Bias::kNone;
  bool head_norms = false;
  bool output_gate = false;  ///< attn_q holds the rows of queries and gates
};

/// "<prefix>attn_q.weight" and so on; `prefix` is "blk.<i>.".
AttentionWeights load_attention(TensorLoader& loader, const std::string& prefix,
                                const ModelConfig& config, const LayerShape& shape,
                                const AttentionTensors& tensors);
/// "<prefix>ffn_gate.weight", ffn_up, ffn_down.
FeedForwardWeights load_feed_forward(TensorLoader& loader, const std::string& prefix,
                                     const ModelConfig& config, const LayerShape& shape,
                                     Bias bias = Bias::kNone);

/// pass.branch = W_o attention(rotated(W_q h), rotated(W_k h), W_v h), h = pass.normed; keys and
/// values are stored in the state's cache of `layer`. With a gate, attention(...) is multiplied
/// with its sigmoid first.
void run_attention(Pass& pass, int64_t layer, const std::string& prefix, const AttentionWeights& w,
                   const AttentionOptions& options);
/// pass.branch = W_down (unit(W_gate h) * W_up h), h = pass.normed.
void run_feed_forward(Pass& pass, const std::string& prefix, const FeedForwardWeights& w,
                      GatedUnit unit, int64_t d_ff);
/// pass.normed = rms_norm(pass.x) * weight.
void run_norm(Pass& pass, const std::vector<float>& weight, float eps);

}  // namespace ts
