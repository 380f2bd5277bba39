/// The recurrent half-layer of hybrid models: a gated delta net (Yang, Kautz, Hatamizadeh 2024,
/// "Gated Delta Networks: Improving Mamba2 with Delta Rule") between projections.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/decoder.h"

namespace ts {

/// Value heads and all that belongs to them are stored in tiled order: value head h reads key head
/// h mod n_k_heads.
struct GatedDeltaNetWeights {
  Linear qkv;                      ///< attn_qkv: queries | keys | values, [conv_channels]
  Linear gate;                     ///< attn_gate: [n_v_heads * head_dim]
  Linear alpha;                    ///< ssm_alpha: input of the decay, [n_v_heads]
  Linear beta;                     ///< ssm_beta: input of the update rate, [n_v_heads]
  Linear out;                      ///< ssm_out
  std::vector<float> conv;         ///< [conv_kernel, conv_channels]
  std::vector<float> decay_scale;  ///< ssm_a: [n_v_heads], -e^A
  std::vector<float> decay_bias;   ///< ssm_dt.bias: [n_v_heads]
  std::vector<float> norm;         ///< ssm_norm: [head_dim], shared by all heads
};

/// FormatError: a tensor missing or misshapen, or a decay factor above zero (then the file holds A
/// itself).
GatedDeltaNetWeights load_gated_delta_net(TensorLoader& loader, const std::string& prefix,
                                          const ModelConfig& config);

/// pass.branch = W_out (rms_norm(delta_rule(silu(conv(W_qkv h)))) * silu(W_gate h)), h =
/// pass.normed; moves the state's recurrent state of `layer` on.
void run_gated_delta_net(Pass& pass, int64_t layer, const std::string& prefix,
                         const GatedDeltaNetWeights& w, const ModelConfig& config);

}  // namespace ts
