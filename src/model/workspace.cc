#include "model/workspace.h"

#include <algorithm>
#include <cstddef>

namespace ts {
namespace {

/// Logits of many rows are computed in groups of about this many values.
constexpr int64_t kLogitFloats = int64_t{1} << 20;

}  // namespace

WorkspaceLayout WorkspaceLayout::of(const ModelConfig& config, int64_t chunk) {
  WorkspaceLayout w;
  w.chunk = chunk;
  w.d_model = config.d_model;
  w.n_vocab = config.n_vocab;
  w.rotated = config.rotated;
  for (const LayerShape& layer : config.layers) {
    w.q_width = std::max(w.q_width, layer.n_heads * config.head_dim);
    w.kv_width = std::max(w.kv_width, layer.n_kv_heads * config.head_dim);
    w.d_ff = std::max(w.d_ff, layer.d_ff);
  }
  const RecurrentShape& recurrent = config.recurrent;
  w.out_width = std::max(w.q_width, recurrent.n_v_heads * recurrent.head_dim);
  w.n_v_heads = recurrent.n_v_heads;
  if (config.attention_output_gate || recurrent.n_v_heads > 0) {
    w.gate_width = w.out_width;
    w.mixed_width = std::max(2 * w.q_width, recurrent.conv_channels);
  }
  w.logit_rows = std::clamp<int64_t>(kLogitFloats / std::max<int64_t>(1, w.n_vocab), 1, chunk);
  if (config.has_planes) {
    const int64_t query_width = config.attention_output_gate ? 2 * w.q_width : w.q_width;
    const int64_t widest = std::max(
        {2 * w.d_ff, query_width + 2 * w.kv_width, w.mixed_width + w.gate_width, w.d_model});
    w.plane_floats = std::max(chunk * widest, w.logit_rows * w.n_vocab);
  }
  return w;
}

uint64_t WorkspaceLayout::bytes() const noexcept {
  const int64_t per_token = 3 * d_model + q_width + out_width + 2 * kv_width + 2 * d_ff +
                            mixed_width + gate_width + 2 * n_v_heads;
  const int64_t floats = chunk * per_token + logit_rows * n_vocab + plane_floats;
  // int8 copies with their scales: one byte and a little per value of the three Linear inputs.
  // Where products run on f32 (float weights, exact mode), rotated f32 copies as well.
  const int64_t derived = chunk * (d_model + out_width + d_ff) * (rotated ? 41 : 9) / 8;
  return static_cast<uint64_t>(floats) * sizeof(float) + static_cast<uint64_t>(derived);
}

Mat Workspace::make(Backend& backend, int64_t rows, int64_t cols, std::string_view what) {
  buffers_.push_back(backend.allocate(static_cast<size_t>(rows * cols), what));
  return Mat{buffers_.back().get(), 0, rows, cols, cols};
}

Workspace::Workspace(Backend& backend, const WorkspaceLayout& layout) : layout_(layout) {
  const int64_t n = layout.chunk;
  x = make(backend, n, layout.d_model, "residual stream");
  normed = make(backend, n, layout.d_model, "normalised rows");
  branch = make(backend, n, layout.d_model, "block output");
  q = make(backend, n, layout.q_width, "queries");
  k = make(backend, n, layout.kv_width, "keys");
  v = make(backend, n, layout.kv_width, "values");
  attended = make(backend, n, layout.out_width, "attention output");
  mixed = make(backend, n, layout.mixed_width, "joint projections");
  out_gate = make(backend, n, layout.gate_width, "output gates");
  decay = make(backend, n, layout.n_v_heads, "decays");
  beta = make(backend, n, layout.n_v_heads, "update rates");
  gate = make(backend, n, layout.d_ff, "feed-forward gate");
  up = make(backend, n, layout.d_ff, "feed-forward input");
  logits = make(backend, layout.logit_rows, layout.n_vocab, "logits");
  if (layout.plane_floats > 0) planes = make(backend, 1, layout.plane_floats, "plane products");
}

}  // namespace ts
