/// Hyper-parameters of a model, read from file metadata with range checks.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "format/metadata.h"
#include "model/rope_config.h"

namespace ts {

/// Reads keys of the form "<architecture>.<suffix>". Every failure is a FormatError that names the
/// file, the key, what was found and what was expected.
class ConfigReader {
 public:
  ConfigReader(const Metadata& metadata, std::string architecture)
      : metadata_(metadata), architecture_(std::move(architecture)) {}

  const Metadata& metadata() const noexcept { return metadata_; }
  const std::string& architecture() const noexcept { return architecture_; }
  /// "<architecture>.<suffix>".
  std::string key(std::string_view suffix) const;
  bool has(std::string_view suffix) const { return metadata_.contains(key(suffix)); }

  int64_t require_int(std::string_view suffix, int64_t min, int64_t max) const;
  int64_t int_or(std::string_view suffix, int64_t fallback, int64_t min, int64_t max) const;
  /// Finite and inside [min, max].
  double require_float(std::string_view suffix, double min, double max) const;
  double float_or(std::string_view suffix, double fallback, double min, double max) const;
  std::string string_or(std::string_view suffix, std::string fallback) const;
  /// One value per layer: the file may state a scalar (for all layers) or an array of exactly
  /// n_layers integers. An absent key gives `fallback` (empty = the key is required).
  std::vector<int64_t> per_layer(std::string_view suffix, int64_t n_layers, int64_t min,
                                 int64_t max, const std::vector<int64_t>& fallback = {}) const;
  /// Throws FormatError "<file>: <key>: <what>".
  [[noreturn]] void fail(std::string_view suffix, const std::string& what) const;

 private:
  const Metadata& metadata_;
  std::string architecture_;
};

struct LayerShape {
  int64_t n_heads = 0, n_kv_heads = 0, d_ff = 0;
  bool recurrent = false;  ///< a gated-delta-rule layer instead of attention
};

/// What the dense decoder families have in common. Immutable after reading.
struct ModelConfig {
  std::string architecture;
  int64_t n_layers = 0, d_model = 0, n_vocab = 0;
  int64_t context_length = 0;  ///< positions the model was made for
  int64_t head_dim = 0;        ///< of queries, keys and values
  float norm_eps = 0;
  float attention_scale = 0;  ///< factor of q.k
  float logit_softcap = 0;    ///< 0 = none
  std::vector<LayerShape> layers;
  RecurrentShape recurrent;  ///< of the recurrent layers; n_v_heads = 0: there are none
  /// Queries are projected together with a gate of the attention output.
  bool attention_output_gate = false;
  RopeParams rope;
  /// Some matrices are stored rotated: the rows entering them exist in a second, rotated copy.
  bool rotated = false;
  /// Some matrices are sums of several planes.
  bool has_planes = false;
};

/// Reads the keys shared by the dense families. `n_vocab` is the number of rows of the embedding;
/// a token list of another length is an error.
/// With `min_kv_heads` 0 a layer may have no key heads; what that means is the caller's to check.
/// Errors: FormatError (missing key, out of range, inconsistent), Unsupported (experts, and
/// settings that no dense family computes).
ModelConfig read_common_config(const ConfigReader& reader, int64_t n_vocab,
                               int64_t min_kv_heads = 1);

}  // namespace ts
