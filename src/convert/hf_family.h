/// What the converter knows of each model family: the names of its tensors in checkpoints and in
/// GGUF, their shapes and transformations, and which settings it writes. One table row per tensor;
/// adding a family is one file with its tables and one row in hf_family.cc.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "convert/hf_config.h"
#include "format/metadata.h"

namespace ts {

/// A dimension in terms of the configuration.
enum class Dim : uint8_t {
  kNone,   ///< a vector has no input dimension
  kModel,  ///< d_model
  kFf,     ///< d_ff
  kQuery,  ///< n_heads * head_dim
  kKey,    ///< n_kv_heads * head_dim
  kHead,   ///< head_dim
  kVocab,  ///< rows of the embedding
  // Of layers with an output gate, and of recurrent layers.
  kQueryGate,   ///< 2 * n_heads * head_dim
  kChannels,    ///< (2 * n_k_heads + n_v_heads) * state_dim
  kValues,      ///< n_v_heads * state_dim
  kValueHeads,  ///< n_v_heads
  kState,       ///< state_dim
  kTaps,        ///< conv_taps
};

/// Value heads of recurrent layers lie grouped by key head in checkpoints and tiled in GGUF (see
/// row_order.h).
enum class RowOrder : uint8_t {
  kAsIs,
  kLlamaPairs,
  kValueHeads,    ///< one row, or element, per value head
  kValueRows,     ///< state_dim rows per value head
  kChannelRows,   ///< rows of queries and keys, then state_dim rows per value head
  kValueColumns,  ///< the columns: state_dim per value head
};
enum class ValueChange : uint8_t { kAsIs, kPlusOne, kMinusExp };
enum class Presence : uint8_t { kRequired, kOptional };

struct TensorRule {
  std::string_view hf;    ///< name in the checkpoint; of layers: the part after "model.layers.N."
  std::string_view gguf;  ///< name in GGUF; of layers: the part after "blk.N."
  Dim rows = Dim::kNone;  ///< output dimension
  Dim cols = Dim::kNone;  ///< input dimension
  RowOrder order = RowOrder::kAsIs;
  ValueChange change = ValueChange::kAsIs;
  Presence presence = Presence::kRequired;
};

/// The sizes that a configuration states, checked against each other.
struct HfSizes {
  int64_t n_layers = 0, d_model = 0, d_ff = 0, n_heads = 0, n_kv_heads = 0, head_dim = 0,
          context = 0;
  int64_t n_vocab = 0;  ///< rows of the embedding; known once the tensors are
  // Hybrid families.
  int64_t n_k_heads = 0, n_v_heads = 0, state_dim = 0, conv_taps = 0;
  std::vector<bool> recurrent;  ///< per layer; empty = none is

  int64_t of(Dim dim) const;
  bool is_recurrent(int64_t layer) const {
    return !recurrent.empty() && recurrent[static_cast<size_t>(layer)];
  }
};

struct HfFamily {
  std::string_view architecture;  ///< general.architecture
  std::span<const TensorRule> global_rules, layer_rules;

  // Values that checkpoints leave out because they are the defaults of the model class.
  int64_t default_context, default_head_dim /* 0 = d_model / n_heads */;
  int64_t default_heads /* 0 = required */, default_kv_heads /* 0 = n_heads */;
  double default_rope_base;
  bool default_tied;
  std::string_view activation;  ///< the hidden_act that the architecture computes

  /// Refuses settings the architecture cannot express and writes those of this family only.
  void (*write_metadata)(const HfConfig& config, const HfSizes& sizes, Metadata& metadata,
                         std::vector<std::string>& notes);

  std::span<const TensorRule> recurrent_rules = {};  ///< of recurrent layers
  bool partial_rotary = false;                       ///< heads may turn in part
  /// Reads the sizes of this family only; may be null.
  void (*read_sizes)(const HfConfig& config, HfSizes& sizes) = nullptr;

  std::span<const TensorRule> rules_of(const HfSizes& sizes, int64_t layer) const {
    return sizes.is_recurrent(layer) ? recurrent_rules : layer_rules;
  }
};

/// The family of the checkpoint's model class; Unsupported, with a list, when there is none.
const HfFamily& require_family(const HfConfig& config);

/// Reads and checks the sizes all families have.
HfSizes read_hf_sizes(const HfConfig& config, const HfFamily& family);

/// Writes the settings of `config` under the family's architecture: the common ones, then the
/// family's own.
void write_hf_metadata(const HfConfig& config, const HfFamily& family, const HfSizes& sizes,
                       Metadata& metadata, std::vector<std::string>& notes);

bool is_tied(const HfConfig& config, const HfFamily& family);

// For the families' own settings.

/// The list `layer_types`, of one kind per layer; null when absent.
const nlohmann::json* find_layer_types(const HfConfig& config, const HfSizes& sizes);
void set_u32(Metadata& metadata, const std::string& key, int64_t value);
/// Global tensors where the checkpoint stores norms minus one.
inline constexpr TensorRule kGlobalRulesOfShiftedNorms[] = {
    {"model.embed_tokens.weight", "token_embd.weight", Dim::kVocab, Dim::kModel},
    {"model.norm.weight", "output_norm.weight", Dim::kModel, Dim::kNone, RowOrder::kAsIs,
     ValueChange::kPlusOne},
    {"lm_head.weight", "output.weight", Dim::kVocab, Dim::kModel, RowOrder::kAsIs,
     ValueChange::kAsIs, Presence::kOptional},
};

// The families, one file each.
extern const HfFamily kLlamaFamily, kQwen2Family, kQwen3Family, kGemma3Family, kQwen35Family;

}  // namespace ts
