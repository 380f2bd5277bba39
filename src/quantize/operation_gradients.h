/// Gradients of a forward pass's operations (and the attention that goes with them): given what an
/// operation read and the gradient of what it wrote, adds the gradients of what it read. Dense
/// matrices [rows, cols], row-major, f32. Held to finite differences by
/// tests/unit/quantize/tuning_test.cc.
#pragma once

#include <cstdint>
#include <span>

#include "backend/backend.h"
#include "base/thread_pool.h"

namespace ts {

/// y = x / sqrt(mean(x^2) + eps) * w in groups of `group`. dx [rows, cols] and dw [group] are added
/// to; dw may be empty.
void rms_norm_gradient(std::span<const float> x, std::span<const float> w, float eps,
                       std::span<const float> dy, std::span<float> dx, std::span<double> dw);

/// Turns the gradient of rotated heads into that of the heads before, in place.
/// d [rows, n_heads * head_dim]; the first row is at `first_position`.
void rope_gradient(std::span<float> d, int64_t n_heads, int64_t head_dim, int64_t first_position,
                   const Rope& rope);

/// Shape of causal attention over one text that begins at position 0.
struct AttentionShape {
  int64_t n_tokens = 0, n_heads = 0, n_kv_heads = 0, head_dim = 0;
  float scale = 1;
  int64_t window = 0;  ///< as AttentionArgs::window
};
AttentionShape attention_shape(const AttentionArgs& args) noexcept;
/// Of one head: softmax over the visible keys of scale q k', zeros elsewhere. p [n, n]; rows of q
/// and k [n, head_dim] are q_stride and k_stride apart.
void attention_shares(const AttentionShape& shape, const float* q, int64_t q_stride, const float* k,
                      int64_t k_stride, float* p);
/// q, dq [n_tokens, n_heads * head_dim]; k, v, dk, dv [n_tokens, n_kv_heads * head_dim]; d_out as
/// q. dq, dk and dv are added to.
void attention_gradient(const AttentionShape& shape, const float* q, const float* k, const float* v,
                        const float* d_out, float* dq, float* dk, float* dv, ThreadPool& pool);

/// out = unit(gate) * up. d_gate and d_up are added to.
void gated_unit_gradient(GatedUnit unit, std::span<const float> gate, std::span<const float> up,
                         std::span<const float> d_out, std::span<float> d_gate,
                         std::span<float> d_up);

/// y = x W' with W [n_out, n_in]: dx [n_tokens, n_in] is added to. Split over the pool into pieces
/// whose shapes depend on the problem alone.
void linear_input_gradient(int64_t n_tokens, int64_t n_out, int64_t n_in, const float* dy,
                           const float* weight, float* dx, ThreadPool& pool);

}  // namespace ts
