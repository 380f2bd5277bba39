/// Writes small Hugging Face checkpoint directories for tests: settings, weights, and the tokenizer
/// of the stored llama checkpoint. The default is a complete llama of one layer.
#pragma once

#include <bit>
#include <cstdint>
#include <filesystem>
#include <map>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/half.h"
#include "codec/codec.h"
#include "format/gguf.h"
#include "support/gguf_builder.h"

namespace ts::test {

struct StoredTensor {
  std::string dtype;
  std::vector<int64_t> shape;
  std::string data;
};

inline std::string f32_bytes(const std::vector<float>& values) {
  std::string out;
  for (const float v : values)
    append_value(out, v);
  return out;
}

inline std::string bf16_bytes(const std::vector<float>& values) {
  std::string out;
  for (const float v : values)
    append_value(out, float_to_bf16(v));
  return out;
}

inline std::string f16_bytes(const std::vector<float>& values) {
  std::string out;
  for (const float v : values)
    append_value(out, float_to_half(v));
  return out;
}

/// Values that differ from place to place and are exact in bf16.
inline std::vector<float> bf16_values(size_t count, uint32_t seed) {
  std::vector<float> values(count);
  uint32_t state = seed * 2654435761u + 12345u;
  for (float& value : values) {
    state = state * 1664525u + 1013904223u;
    const auto step = static_cast<int>(state >> 24) - 128;  // at most 8 significant bits
    value = static_cast<float>(step) / 64.0F;
  }
  return values;
}

inline int64_t count_of(const std::vector<int64_t>& shape) {
  return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
}

inline std::string safetensors_bytes(const std::map<std::string, StoredTensor>& tensors) {
  nlohmann::json header = nlohmann::json::object();
  std::string data;
  for (const auto& [name, tensor] : tensors) {
    const size_t begin = data.size();
    data += tensor.data;
    header[name] = {
        {"dtype", tensor.dtype}, {"shape", tensor.shape}, {"data_offsets", {begin, data.size()}}};
  }
  const std::string text = header.dump();
  std::string out;
  append_value<uint64_t>(out, text.size());
  return out + text + data;
}

/// The decoded values of a tensor; a failure of the test when there is none.
inline std::vector<float> tensor_values(const GgufFile& file, const std::string& name) {
  const TensorEntry* entry = file.find(name);
  if (entry == nullptr) {
    ADD_FAILURE() << name << " is missing";
    return {};
  }
  std::vector<float> values(static_cast<size_t>(entry->shape.n_elems()));
  require_codec(entry->type, name).decode(entry->data.data(), values.data(), values.size());
  return values;
}

class CheckpointBuilder {
 public:
  static constexpr int64_t kVocab = 320;  // of the stored tokenizer

  nlohmann::json config = {
      {"architectures", {"LlamaForCausalLM"}},
      {"model_type", "llama"},
      {"hidden_act", "silu"},
      {"hidden_size", 32},
      {"intermediate_size", 64},
      {"max_position_embeddings", 128},
      {"num_attention_heads", 4},
      {"num_hidden_layers", 1},
      {"num_key_value_heads", 2},
      {"rms_norm_eps", 1e-5},
      {"rope_theta", 10000.0},
      {"tie_word_embeddings", true},
      {"vocab_size", kVocab},
  };
  std::map<std::string, StoredTensor> tensors;

  CheckpointBuilder() {
    add("model.embed_tokens.weight", {kVocab, 32});
    add("model.norm.weight", {32});
    add_layer("input_layernorm.weight", {32});
    add_layer("self_attn.q_proj.weight", {32, 32});
    add_layer("self_attn.k_proj.weight", {16, 32});
    add_layer("self_attn.v_proj.weight", {16, 32});
    add_layer("self_attn.o_proj.weight", {32, 32});
    add_layer("post_attention_layernorm.weight", {32});
    add_layer("mlp.gate_proj.weight", {64, 32});
    add_layer("mlp.up_proj.weight", {64, 32});
    add_layer("mlp.down_proj.weight", {32, 64});
  }

  /// A BF16 tensor of bf16_values() whose seed follows from the name.
  void add(const std::string& name, const std::vector<int64_t>& shape) {
    tensors[name] = {"BF16", shape, bf16_bytes(values(name, shape))};
  }
  void add_layer(const std::string& name, const std::vector<int64_t>& shape) {
    add(layer_name(name), shape);
  }
  static std::string layer_name(const std::string& name) { return "model.layers.0." + name; }
  static std::vector<float> values(const std::string& name, const std::vector<int64_t>& shape) {
    uint32_t seed = 1;
    for (const char c : name)
      seed = seed * 31 + static_cast<unsigned char>(c);
    return bf16_values(static_cast<size_t>(count_of(shape)), seed);
  }
  /// What add_layer() stored.
  std::vector<float> layer_values(const std::string& name) const {
    return values(layer_name(name), tensors.at(layer_name(name)).shape);
  }

  /// Writes the directory.
  void write(const std::filesystem::path& directory) const {
    namespace fs = std::filesystem;
    fs::create_directories(directory);
    write_file(directory / "config.json", config.dump());
    write_file(directory / "model.safetensors", safetensors_bytes(tensors));
    for (const char* name : {"tokenizer.json", "tokenizer_config.json"})
      fs::copy_file(fs::path(TS_TESTDATA_DIR) / "hf" / "llama" / name, directory / name,
                    fs::copy_options::overwrite_existing);
  }
};

}  // namespace ts::test
