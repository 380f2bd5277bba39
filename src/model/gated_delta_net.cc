#include "model/gated_delta_net.h"

#include <algorithm>
#include <cstddef>

#include <fmt/format.h>

#include <tensorsharp/error.hpp>

namespace ts {

GatedDeltaNetWeights load_gated_delta_net(TensorLoader& loader, const std::string& prefix,
                                          const ModelConfig& config) {
  const RecurrentShape& shape = config.recurrent;
  const int64_t value_width = shape.n_v_heads * shape.head_dim;
  GatedDeltaNetWeights w;
  w.qkv = loader.linear(prefix + "attn_qkv", config.d_model, shape.conv_channels);
  w.gate = loader.linear(prefix + "attn_gate", config.d_model, value_width);
  w.alpha = loader.linear(prefix + "ssm_alpha", config.d_model, shape.n_v_heads);
  w.beta = loader.linear(prefix + "ssm_beta", config.d_model, shape.n_v_heads);
  const auto taps =
      loader.table(prefix + "ssm_conv1d.weight", shape.conv_kernel, shape.conv_channels);
  w.decay_bias = loader.vector(prefix + "ssm_dt.bias", shape.n_v_heads);
  w.decay_scale = loader.vector(prefix + "ssm_a", shape.n_v_heads);
  w.norm = loader.vector(prefix + "ssm_norm.weight", shape.head_dim);
  w.out = loader.linear(prefix + "ssm_out", value_width, config.d_model);
  const auto bad =
      std::find_if(w.decay_scale.begin(), w.decay_scale.end(), [](float a) { return a > 0; });
  if (bad != w.decay_scale.end())
    throw FormatError(
        fmt::format("{}: tensor {}ssm_a holds {} at index {}, expected -exp(A), which is negative; "
                    "the file was converted wrongly, convert it again",
                    loader.source(), prefix, *bad, bad - w.decay_scale.begin()));
  // One row per tap, so that neighbouring channels lie next to each other.
  w.conv.resize(taps.size());
  const auto n_taps = static_cast<size_t>(shape.conv_kernel);
  const auto channels = static_cast<size_t>(shape.conv_channels);
  for (size_t i = 0; i < taps.size(); ++i)
    w.conv[i % n_taps * channels + i / n_taps] = taps[i];
  return w;
}

void run_gated_delta_net(Pass& pass, int64_t layer, const std::string& prefix,
                         const GatedDeltaNetWeights& w, const ModelConfig& config) {
  Backend& backend = pass.backend;
  const RecurrentShape& shape = config.recurrent;
  const int64_t value_width = shape.n_v_heads * shape.head_dim;
  RecurrentState& state = pass.state.recurrent(layer);
  DeltaRuleArgs args;
  args.mixed = pass.mixed(shape.conv_channels);
  args.decay = pass.decay(shape.n_v_heads);
  args.beta = pass.beta(shape.n_v_heads);
  args.out = pass.attended(value_width);
  args.decay_scale = w.decay_scale.data();
  args.decay_bias = w.decay_bias.data();
  args.first_position = pass.first_position;
  args.norm_eps = config.norm_eps;
  const Mat gate = pass.out_gate(value_width);
  pass.linears(
      {{&w.qkv, args.mixed}, {&w.gate, gate}, {&w.alpha, args.decay}, {&w.beta, args.beta}},
      pass.normed_act);
  pass.note(prefix, "attn_qkv", args.mixed);
  pass.note(prefix, "attn_gate", gate);
  pass.note(prefix, "ssm_alpha", args.decay);
  pass.note(prefix, "ssm_beta", args.beta);
  backend.causal_conv(args.mixed, w.conv.data(), state);
  pass.note(prefix, "ssm_conv1d", args.mixed);
  backend.delta_rule(args, state);
  pass.note(prefix, "delta_rule", args.out);
  pass.attended_act.reset(args.out);
  backend.gated_rms_norm(args.out, w.norm.data(), shape.head_dim, config.norm_eps, gate,
                         pass.attended_act);
  pass.note(prefix, "ssm_norm", args.out);
  pass.linears({{&w.out, pass.branch}}, pass.attended_act);
  pass.note(prefix, "ssm_out", pass.branch);
}

}  // namespace ts
