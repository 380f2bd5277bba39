#include "model/blocks.h"

namespace ts {

AttentionWeights load_attention(TensorLoader& loader, const std::string& prefix,
                                const ModelConfig& config, const LayerShape& shape,
                                const AttentionTensors& tensors) {
  const int64_t q_width = shape.n_heads * config.head_dim;
  const int64_t kv_width = shape.n_kv_heads * config.head_dim;
  AttentionWeights w;
  w.q = loader.linear(prefix + "attn_q", config.d_model,
                      tensors.output_gate ? 2 * q_width : q_width, tensors.qkv_bias);
  w.k = loader.linear(prefix + "attn_k", config.d_model, kv_width, tensors.qkv_bias);
  w.v = loader.linear(prefix + "attn_v", config.d_model, kv_width, tensors.qkv_bias);
  w.output = loader.linear(prefix + "attn_output", q_width, config.d_model, tensors.output_bias);
  if (tensors.head_norms) {
    w.q_norm = loader.vector(prefix + "attn_q_norm.weight", config.head_dim);
    w.k_norm = loader.vector(prefix + "attn_k_norm.weight", config.head_dim);
  }
  return w;
}

FeedForwardWeights load_feed_forward(TensorLoader& loader, const std::string& prefix,
                                     const ModelConfig& config, const LayerShape& shape,
                                     Bias bias) {
  FeedForwardWeights w;
  w.gate = loader.linear(prefix + "ffn_gate", config.d_model, shape.d_ff, bias);
  w.up = loader.linear(prefix + "ffn_up", config.d_model, shape.d_ff, bias);
  w.down = loader.linear(prefix + "ffn_down", shape.d_ff, config.d_model, bias);
  return w;
}

void run_attention(Pass& pass, int64_t layer, const std::string& prefix, const AttentionWeights& w,
                   const AttentionOptions& o) {
  Backend& backend = pass.backend;
  const int64_t n_heads = o.shape.n_heads, n_kv_heads = o.shape.n_kv_heads;
  const Mat q = pass.q(n_heads * o.head_dim);
  const Mat k = pass.k(n_kv_heads * o.head_dim);
  const Mat v = pass.v(n_kv_heads * o.head_dim);
  const Mat attended = pass.attended(n_heads * o.head_dim);
  const Mat projected = o.output_gate ? pass.mixed(2 * n_heads * o.head_dim) : q;
  pass.linears({{&w.q, projected}, {&w.k, k}, {&w.v, v}}, pass.normed_act);
  pass.note(prefix, "attn_q", projected);
  pass.note(prefix, "attn_k", k);
  pass.note(prefix, "attn_v", v);
  if (o.output_gate)
    backend.split_query_gate(projected, o.head_dim, q, pass.out_gate(n_heads * o.head_dim));
  if (!w.q_norm.empty()) {
    backend.rms_norm(q, w.q_norm.data(), o.head_dim, o.norm_eps, q);
    backend.rms_norm(k, w.k_norm.data(), o.head_dim, o.norm_eps, k);
  }
  backend.rope(q, n_heads, o.head_dim, pass.first_position, *o.rope);
  backend.rope(k, n_kv_heads, o.head_dim, pass.first_position, *o.rope);
  AttentionArgs args;
  args.q = q;
  args.k = k;
  args.v = v;
  args.out = attended;
  args.first_position = pass.first_position;
  args.n_heads = n_heads;
  args.scale = o.scale;
  args.window = o.window;
  backend.attention(args, pass.state.cache(layer));
  if (o.output_gate)
    backend.gated_unit(GatedUnit::kSigmoid, pass.out_gate(n_heads * o.head_dim), attended,
                       attended);
  pass.note(prefix, "attention", attended);
  pass.attended_act.reset(attended);
  pass.linears({{&w.output, pass.branch}}, pass.attended_act);
  pass.note(prefix, "attn_output", pass.branch);
}

void run_feed_forward(Pass& pass, const std::string& prefix, const FeedForwardWeights& w,
                      GatedUnit unit, int64_t d_ff) {
  const Mat gate = pass.gate(d_ff), up = pass.up(d_ff);
  pass.linears({{&w.gate, gate}, {&w.up, up}}, pass.normed_act);
  pass.note(prefix, "ffn_gate", gate);
  pass.note(prefix, "ffn_up", up);
  pass.backend.gated_unit(unit, gate, up, gate);
  pass.gate_act.reset(gate);
  pass.linears({{&w.down, pass.branch}}, pass.gate_act);
  pass.note(prefix, "ffn_down", pass.branch);
}

void run_norm(Pass& pass, const std::vector<float>& weight, float eps) {
  pass.normed_act.reset(pass.normed);
  pass.backend.rms_norm(pass.x, weight.data(), eps, pass.normed_act);
}

}  // namespace ts
