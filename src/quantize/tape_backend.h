/// A backend that can remember the operations of a pass and go back through them, from the gradient
/// of what the pass computed to the gradients of weights.
///
/// Memory while recording: what each operation read, about 4 n_tokens (6 d_model + 2 kv + 3 d_ff)
/// bytes per layer.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "backend/backend.h"
#include "quantize/forwarding_backend.h"

namespace ts {

/// Receives gradients on the way back.
class GradientSink {
 public:
  virtual ~GradientSink() = default;
  /// Of y = x W' + b with the matrix whose f32 values lie at `weight`:
  /// x [n_tokens, n_in], dy [n_tokens, n_out]; the gradient of W is dy' x.
  virtual void matrix(const float* weight, std::span<const float> x, std::span<const float> dy,
                      int64_t n_tokens) = 0;
  /// Of a norm's gains or a bias, which the model holds at `vector`.
  virtual void vector(const float* vector, std::span<const double> gradient) = 0;
};

class TapeBackend : public ForwardingBackend {
 public:
  explicit TapeBackend(std::shared_ptr<Backend> inner);
  ~TapeBackend() override;

  /// Uses `values` wherever the model says `vector` (gains of a norm, a bias); they must outlive
  /// their use.
  void replace_vector(const float* vector, const float* values);

  /// Starts to remember. Passes must begin at position 0 of their texts and read f32 matrices
  /// without rotation. Until end_recording(), operations of recurrent layers throw Unsupported.
  void begin_recording();
  void end_recording();

  /// Goes back through what was recorded. `gradient` is of the rows `out` as the pass left them.
  void backward(Mat out, std::span<const float> gradient, GradientSink& sink);

  std::shared_ptr<const Weight> upload(const TensorView& tensor,
                                       std::shared_ptr<const void> keep_alive, WeightUse use,
                                       const ReleaseBytes& release) override;
  void linear(std::span<const LinearJob> jobs, Activation& x) override;
  void rms_norm(Mat x, const float* w, int64_t group, float eps, Mat y) override;
  void rms_norm(Mat x, const float* w, float eps, Activation& y) override;
  void rope(Mat x, int64_t n_heads, int64_t head_dim, int64_t first_position,
            const Rope& rope) override;
  void attention(const AttentionArgs& args, KvCache& cache) override;
  void split_query_gate(Mat p, int64_t head_dim, Mat query, Mat gate) override;
  void causal_conv(Mat x, const float* w, RecurrentState& state) override;
  void delta_rule(const DeltaRuleArgs& args, RecurrentState& state) override;
  void gated_rms_norm(Mat x, const float* w, int64_t group, float eps, Mat gate,
                      Activation& y) override;
  void gated_unit(GatedUnit unit, Mat gate, Mat up, Mat out) override;
  void add(Mat x, Mat y) override;
  void softcap(Mat x, float cap) override;

 private:
  class Places;
  struct Tape;
  const float* replaced(const float* vector) const;
  std::unique_ptr<Tape> tape_;  ///< null while nothing is remembered
  std::unordered_map<const Weight*, const float*> f32_;
  std::unordered_map<const float*, const float*> replaced_;
};

}  // namespace ts
