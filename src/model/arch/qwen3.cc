/// qwen3: Qwen 3 dense models and those derived from them. As qwen2 without biases; queries and
/// keys are normalised per head before the rotary embedding. The head size is usually not
/// d_model / n_heads.
#include "model/arch/dense.h"
#include "model/arch/registry.h"

namespace ts {

std::unique_ptr<DecoderModel> create_qwen3(const ConfigReader& reader, int64_t n_vocab) {
  ModelConfig config = read_common_config(reader, n_vocab);
  config.rope.half_split = true;
  DenseTensors tensors;
  tensors.attention.head_norms = true;
  return std::make_unique<DenseModel>(std::move(config), tensors);
}

}  // namespace ts
