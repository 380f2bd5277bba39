/// The frame of a decoder-only transformer: token embedding, layers, final norm, output matrix.
/// A family derives from it, loads its layers and runs one layer at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "model/linear.h"
#include "model/model.h"
#include "model/tensor_loader.h"

namespace ts {

/// One forward pass over n tokens: the workspace's buffers cut to n rows.
class Pass {
 public:
  Pass(Backend& backend, const ForwardRequest& request, State& state, Workspace& workspace);

  Backend& backend;
  State& state;
  int64_t n_tokens;
  int64_t first_position;
  Mat x, normed, branch;  ///< [n_tokens, d_model]
  Activation& normed_act;
  Activation& attended_act;
  Activation& gate_act;

  /// Buffers of layer-dependent width: the first `cols` columns.
  Mat q(int64_t cols) const { return cut(workspace_.q, cols); }
  Mat k(int64_t cols) const { return cut(workspace_.k, cols); }
  Mat v(int64_t cols) const { return cut(workspace_.v, cols); }
  Mat attended(int64_t cols) const { return cut(workspace_.attended, cols); }
  Mat mixed(int64_t cols) const { return cut(workspace_.mixed, cols); }
  Mat out_gate(int64_t cols) const { return cut(workspace_.out_gate, cols); }
  Mat decay(int64_t cols) const { return cut(workspace_.decay, cols); }
  Mat beta(int64_t cols) const { return cut(workspace_.beta, cols); }
  Mat gate(int64_t cols) const { return cut(workspace_.gate, cols); }
  Mat up(int64_t cols) const { return cut(workspace_.up, cols); }

  /// run_linears(), shown to the observer, if there is one.
  void linears(std::initializer_list<LinearCall> calls, Activation& rows) const;
  /// Shows an intermediate result to the probe, if there is one.
  void note(std::string_view layer_prefix, std::string_view what, Mat rows) const;

 private:
  /// Rows stay densely packed: a narrower layer uses the front of the buffer.
  Mat cut(const Mat& buffer, int64_t cols) const {
    return {buffer.buffer, buffer.offset, n_tokens, cols, cols};
  }
  Workspace& workspace_;
  const ForwardProbe* probe_;
  const LinearObserver* observer_;
};

class DecoderModel : public Model {
 public:
  const ModelConfig& config() const final { return config_; }
  uint64_t weight_bytes() const final { return weight_bytes_; }
  uint64_t weight_bytes_per_token() const final { return weight_bytes_per_token_; }
  int64_t n_parameters() const final { return n_parameters_; }
  const std::vector<std::string>& tensor_names() const final { return tensor_names_; }
  std::vector<const Weight*> weights() const final { return weights_; }
  std::vector<const Rotation*> rotations() const final { return rotations_; }
  void forward(const ForwardRequest& request, State& state, Workspace& workspace) const final;

  /// Loads everything and checks that the file holds nothing else. Called once, by load_model().
  void load(TensorLoader& loader, const GgufFile& file, Backend* backend);

 protected:
  explicit DecoderModel(ModelConfig config) : config_(std::move(config)) {}

  /// Declares and loads the tensors of the layers.
  virtual void load_layers(TensorLoader& loader) = 0;
  /// pass.x = layer(pass.x).
  virtual void run_layer(Pass& pass, int64_t layer) const = 0;

  ModelConfig config_;
  float embedding_scale_ = 1.0F;
  Bias output_bias_ = Bias::kNone;

 private:
  /// The pass itself; the state's length stays.
  void run(const ForwardRequest& request, State& state, Workspace& workspace) const;
  void compute_logits(const Pass& pass, const ForwardRequest& request, Workspace& workspace) const;

  Backend* backend_ = nullptr;
  Embedding token_embedding_;
  std::vector<float> output_norm_;
  Linear output_;
  uint64_t weight_bytes_ = 0, weight_bytes_per_token_ = 0;
  int64_t n_parameters_ = 0;
  std::vector<const Weight*> weights_;
  std::vector<const Rotation*> rotations_;
  std::vector<std::string> tensor_names_;
};

}  // namespace ts
