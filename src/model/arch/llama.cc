/// llama: Llama 2 and 3, SmolLM2, Mistral-like models. Interleaved rotary pairs over the whole head
/// (converters permute the rows of attn_q and attn_k for it); optional biases.
#include <fmt/format.h>

#include <tensorsharp/error.hpp>

#include "model/arch/dense.h"
#include "model/arch/registry.h"

namespace ts {

std::unique_ptr<DecoderModel> create_llama(const ConfigReader& reader, int64_t n_vocab) {
  ModelConfig config = read_common_config(reader, n_vocab);
  if (config.rope.n_rot != config.head_dim)
    throw Unsupported(fmt::format(
        "{}: {} = {}: partial rotary embedding is not supported for architecture llama, expected "
        "the head size {}",
        reader.metadata().source(), reader.key("rope.dimension_count"), config.rope.n_rot,
        config.head_dim));
  config.rope.half_split = false;
  DenseTensors tensors;
  tensors.attention.qkv_bias = Bias::kOptional;
  tensors.attention.output_bias = Bias::kOptional;
  tensors.feed_forward_bias = Bias::kOptional;
  return std::make_unique<DenseModel>(std::move(config), tensors);
}

}  // namespace ts
