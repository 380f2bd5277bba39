/// qwen2: Qwen 2 and 2.5. As llama with rotary pairs (j, j + n_rot/2) and biases on queries, keys
/// and values.
#include "model/arch/dense.h"
#include "model/arch/registry.h"

namespace ts {

std::unique_ptr<DecoderModel> create_qwen2(const ConfigReader& reader, int64_t n_vocab) {
  ModelConfig config = read_common_config(reader, n_vocab);
  config.rope.half_split = true;
  DenseTensors tensors;
  tensors.attention.qkv_bias = Bias::kRequired;
  tensors.output_bias = Bias::kOptional;
  return std::make_unique<DenseModel>(std::move(config), tensors);
}

}  // namespace ts
