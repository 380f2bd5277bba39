/// Shapes of published models: what a model of random weights needs to know of them. A further one
/// is a further row in shapes.cc.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

namespace ts {

/// A tokenizer of the same size and kind as a published one.
struct SyntheticVocabulary {
  std::string_view pre;  ///< pre-tokenizer name
  int64_t n_tokens;      ///< rows of the embedding
  int64_t n_bpe;         ///< tokens of the byte pair encoding, from id 0 on
  int64_t n_merges;      ///< of them, those that merges make; at most n_bpe - 256
  /// Texts of added tokens, ids from n_bpe on. An empty text is a place whose name is not known.
  /// Ids behind them are unused.
  std::span<const std::string_view> added;
};

/// The layers without attention of hybrid models (Gated DeltaNet). All zero = there are none.
struct SyntheticDeltaNet {
  int64_t attention_interval = 0;  ///< layer i has attention when (i + 1) % interval == 0
  int64_t conv_kernel = 0;
  int64_t head_dim = 0;  ///< of keys and values
  int64_t n_key_heads = 0, n_value_heads = 0;
};

struct SyntheticShape {
  std::string_view name;
  std::string_view architecture;
  std::string_view scheme = "ptq1_0";  ///< type of the matrices unless asked otherwise
  int64_t n_layers, d_model, d_ff, n_heads, n_kv_heads, head_dim, n_rot, context;
  bool tied_output = false;
  float rope_base;
  float norm_eps = 1e-6F;
  std::array<int64_t, 4> rope_sections = {};  ///< all zero = none
  int64_t hadamard_block = 1024;              ///< of the rotation that ternary forms carry
  SyntheticVocabulary vocabulary;
  SyntheticDeltaNet delta_net = {};

  bool is_hybrid() const noexcept { return delta_net.attention_interval > 0; }
  /// Layers with attention; the others are Gated DeltaNet.
  bool has_attention(int64_t layer) const noexcept {
    return !is_hybrid() || (layer + 1) % delta_net.attention_interval == 0;
  }
};

std::span<const SyntheticShape> all_synthetic_shapes() noexcept;
/// Throws InvalidArgument naming the known ones.
const SyntheticShape& find_synthetic_shape(std::string_view name);

}  // namespace ts
