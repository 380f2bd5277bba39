/// Scratch memory of one forward pass, allocated once per session for the largest chunk.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "backend/backend.h"
#include "model/config.h"

namespace ts {

/// Sizes of a Workspace; also what the memory plan counts.
struct WorkspaceLayout {
  int64_t chunk = 0;  ///< tokens per forward pass
  int64_t d_model = 0;
  int64_t q_width = 0;    ///< n_heads * head_dim, largest layer
  int64_t out_width = 0;  ///< outputs of attention or of the recurrence, largest layer
  int64_t kv_width = 0;   ///< n_kv_heads * head_dim, largest layer
  int64_t d_ff = 0;       ///< largest layer
  int64_t n_vocab = 0;
  int64_t logit_rows = 0;   ///< rows of logits computed at a time
  int64_t mixed_width = 0;  ///< projections that are taken apart: queries with gates, conv channels
  int64_t gate_width = 0;   ///< gates of the outputs of attention or of the recurrence
  int64_t n_v_heads = 0;    ///< of recurrent layers
  bool rotated = false;     ///< the rows entering a Linear may have rotated copies
  int64_t plane_floats = 0;  ///< products of a further plane of the Linears computed together

  static WorkspaceLayout of(const ModelConfig& config, int64_t chunk);
  /// Bytes of all buffers and, about, of the forms derived from the rows entering a Linear.
  uint64_t bytes() const noexcept;
};

/// Not thread-safe; one per session.
class Workspace {
 public:
  Workspace(Backend& backend, const WorkspaceLayout& layout);
  const WorkspaceLayout& layout() const noexcept { return layout_; }

  Mat x;            ///< [chunk, d_model] the residual stream
  Mat normed;       ///< [chunk, d_model]
  Mat branch;       ///< [chunk, d_model] output of attention or feed-forward
  Mat q;            ///< [chunk, q_width]
  Mat k, v;         ///< [chunk, kv_width]
  Mat attended;     ///< [chunk, out_width]
  Mat mixed;        ///< [chunk, mixed_width]
  Mat out_gate;     ///< [chunk, gate_width]
  Mat decay, beta;  ///< [chunk, n_v_heads]
  Mat gate, up;     ///< [chunk, d_ff]
  Mat logits;       ///< [logit_rows, n_vocab]
  Mat planes;       ///< [1, plane_floats]
  /// Derived forms of normed, attended and gate, kept so that their memory is reused.
  Activation normed_act, attended_act, gate_act;

 private:
  Mat make(Backend& backend, int64_t rows, int64_t cols, std::string_view what);

  WorkspaceLayout layout_;
  std::vector<std::shared_ptr<Buffer>> buffers_;
};

}  // namespace ts
