/// The layer of llama, qwen2 and qwen3: attention and SwiGLU feed-forward, each after a norm and
/// added to the residual stream. The families differ in biases, head norms and rotary pairing.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/blocks.h"
#include "model/decoder.h"

namespace ts {

struct DenseTensors {
  AttentionTensors attention;
  Bias feed_forward_bias = Bias::kNone;
  Bias output_bias = Bias::kNone;
};

///   x += W_o attention(norm(x));  x += W_down (silu(W_gate h) * W_up h), h = norm(x)
class DenseModel : public DecoderModel {
 public:
  DenseModel(ModelConfig config, const DenseTensors& tensors);

 protected:
  void load_layers(TensorLoader& loader) override;
  void run_layer(Pass& pass, int64_t layer) const override;

 private:
  struct Layer {
    std::string prefix;
    std::vector<float> attention_norm, feed_forward_norm;
    AttentionWeights attention;
    FeedForwardWeights feed_forward;
  };
  DenseTensors tensors_;
  Rope rope_;
  std::vector<Layer> layers_;
};

}  // namespace ts
