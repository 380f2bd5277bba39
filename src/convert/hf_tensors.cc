#include "convert/hf_tensors.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <map>
#include <optional>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <tensorsharp/error.hpp>

#include "base/quote_text.h"
#include "convert/row_order.h"

namespace ts {
namespace {

constexpr std::string_view kLayers = "model.layers.";
constexpr size_t kNamesShown = 4;

struct Place {
  const TensorRule* rule = nullptr;
  int64_t layer = -1;  ///< -1 = global
};

/// "model.layers.12.mlp.up_proj.weight" -> 12 and "mlp.up_proj.weight".
std::optional<std::pair<int64_t, std::string_view>> split_layer(std::string_view name) {
  if (!name.starts_with(kLayers)) return std::nullopt;
  name.remove_prefix(kLayers.size());
  const size_t dot = name.find('.');
  if (dot == std::string_view::npos) return std::nullopt;
  int64_t layer = -1;
  const auto [end, error] = std::from_chars(name.data(), name.data() + dot, layer);
  if (error != std::errc() || end != name.data() + dot || layer < 0) return std::nullopt;
  return std::pair(layer, name.substr(dot + 1));
}

const TensorRule* find_rule(std::span<const TensorRule> rules, std::string_view name) {
  const auto found = std::find_if(rules.begin(), rules.end(),
                                  [&](const TensorRule& rule) { return rule.hf == name; });
  return found == rules.end() ? nullptr : &*found;
}

std::string output_name(const TensorRule& rule, int64_t layer) {
  return layer < 0 ? std::string(rule.gguf) : fmt::format("blk.{}.{}", layer, rule.gguf);
}

std::string input_name(const TensorRule& rule, int64_t layer) {
  return layer < 0 ? std::string(rule.hf) : fmt::format("{}{}.{}", kLayers, layer, rule.hf);
}

std::string list_names(const std::vector<std::string>& names) {
  const size_t shown = std::min(names.size(), kNamesShown);
  std::string text = fmt::format(
      "{}", fmt::join(names.begin(), names.begin() + static_cast<ptrdiff_t>(shown), ", "));
  if (names.size() > shown) text += fmt::format(" and {} more", names.size() - shown);
  return text;
}

const Codec& codec_of_dtype(const std::string& dtype) {
  if (dtype == "BF16") return require_codec(TypeId::kBF16, dtype);
  if (dtype == "F16") return require_codec(TypeId::kF16, dtype);
  return require_codec(TypeId::kF32, dtype);
}

void check_shape(const HfConfig& config, const SafetensorsEntry& entry,
                 const std::vector<int64_t>& found, const TensorRule& rule, const HfSizes& sizes) {
  std::vector<int64_t> expected{sizes.of(rule.rows)};
  if (rule.cols != Dim::kNone) expected.push_back(sizes.of(rule.cols));
  if (found == expected) return;
  throw FormatError(
      fmt::format("{}: {} has the shape [{}], {} asks for [{}]\n"
                  "the settings and the weights do not belong together",
                  entry.file.string(), quote_text(entry.name), fmt::join(found, ", "),
                  config.source(), fmt::join(expected, ", ")));
}

RowSourcePtr reordered(RowSourcePtr rows, RowOrder order, const HfSizes& sizes) {
  if (order == RowOrder::kAsIs) return rows;
  if (order == RowOrder::kLlamaPairs) return llama_pair_rows(std::move(rows), sizes.head_dim);
  const int64_t repeats = sizes.n_v_heads / sizes.n_k_heads;
  if (repeats == 1) return rows;  // grouped and tiled are the same
  const int64_t offset =
      order == RowOrder::kChannelRows ? 2 * sizes.n_k_heads * sizes.state_dim : 0;
  const int64_t head_size = order == RowOrder::kValueHeads ? 1 : sizes.state_dim;
  const bool columns = order == RowOrder::kValueColumns;
  std::vector<int64_t> source(static_cast<size_t>(columns ? rows->n_cols() : rows->n_rows()));
  for (size_t i = 0; i < source.size(); ++i)
    source[i] =
        grouped_source_index(static_cast<int64_t>(i), offset, head_size, sizes.n_k_heads, repeats);
  return columns ? permuted_columns(std::move(rows), std::move(source))
                 : permuted_rows(std::move(rows), std::move(source));
}

OutputTensor make_tensor(const TensorRule& rule, int64_t layer, const HfSizes& sizes,
                         HfWeight weight) {
  OutputTensor tensor;
  tensor.name = output_name(rule, layer);
  tensor.sources = std::move(weight.sources);
  tensor.source_type = std::move(weight.stored_type);
  tensor.rows = std::move(weight.rows);
  tensor.shape =
      rule.cols == Dim::kNone ? Shape{weight.shape[0]} : Shape{weight.shape[1], weight.shape[0]};
  tensor.kept = stays_f32(tensor.name, tensor.shape) ? &require_codec(TypeId::kF32, "f32")
                : weight.unpacked                    ? &smallest_exact_float(*tensor.rows)
                                                     : &codec_of_dtype(tensor.source_type);
  tensor.rows = reordered(std::move(tensor.rows), rule.order, sizes);
  if (rule.change == ValueChange::kPlusOne) tensor.rows = plus_one_rows(std::move(tensor.rows));
  if (rule.change == ValueChange::kMinusExp) tensor.rows = minus_exp_rows(std::move(tensor.rows));
  return tensor;
}

/// Assigns the tensors of one checkpoint.
class Mapper {
 public:
  Mapper(const Safetensors& file, const HfConfig& config, const HfFamily& family,
         const HfQuantization& quantization, HfSizes& sizes, std::vector<std::string>& notes)
      : file_(file),
        config_(config),
        family_(family),
        quantization_(quantization),
        sizes_(sizes),
        notes_(notes) {}

  HfTensors run() {
    sort_names();
    read_vocabulary_size();
    decide_output();
    for (const auto& [name, entry] : by_name_)
      assign(name, *entry);
    fail_on_unknown();
    add_in_order();
    return std::move(result_);
  }

 private:
  void sort_names() {
    for (const SafetensorsEntry& entry : file_.tensors()) {
      const std::string name = plain_tensor_name(entry.name);
      if (const auto reason = skip_reason(name); !reason.empty()) {
        result_.skipped.push_back({entry.name, std::string(reason)});
      } else if (is_unused_scale(name)) {
        result_.skipped.push_back({entry.name, "scale of activations or caches"});
      } else if (const auto [at, added] = by_name_.emplace(name, &entry); !added) {
        throw FormatError(fmt::format("{}: {} and {} are the same tensor under two names",
                                      entry.file.string(), quote_text(at->second->name),
                                      quote_text(entry.name)));
      }
    }
  }

  void read_vocabulary_size() {
    const auto found = by_name_.find("model.embed_tokens.weight");
    if (found == by_name_.end()) {
      const std::string folder = std::filesystem::path(config_.source()).parent_path().string();
      if (by_name_.empty() && !result_.skipped.empty())
        throw FormatError(
            fmt::format("{}: the {} tensors are all left out (first: {}: {}), but {} describes a "
                        "language model\ndownload the files with its weights, too",
                        folder, result_.skipped.size(), quote_text(result_.skipped.front().name),
                        result_.skipped.front().reason, config_.source()));
      throw FormatError(
          fmt::format("{}: the tensor model.embed_tokens.weight is missing\nthe download is "
                      "incomplete, or {} belongs to another checkpoint",
                      folder, config_.source()));
    }
    if (found->second->shape.size() != 2)
      throw FormatError(fmt::format("{}: {} is not a matrix", found->second->file.string(),
                                    quote_text(found->second->name)));
    sizes_.n_vocab = found->second->shape[0];
    const auto stated = config_.get_int("vocab_size", 0, INT64_MAX);
    if (stated && *stated != sizes_.n_vocab)
      notes_.push_back(fmt::format("vocab_size is {}, the embedding has {} rows; the rows count",
                                   *stated, sizes_.n_vocab));
  }

  /// A head equal to the embedding is not stored twice.
  void decide_output() {
    const auto head = by_name_.find("lm_head.weight");
    const bool tied = is_tied(config_, family_);
    if (head == by_name_.end()) {
      if (!tied)
        throw FormatError(
            fmt::format("{}: tie_word_embeddings is false, but lm_head.weight is missing\n"
                        "the download is incomplete",
                        config_.source()));
      return;
    }
    if (!tied) return;
    const SafetensorsEntry& embedding = *by_name_.at("model.embed_tokens.weight");
    const auto& a = embedding.data;
    const auto& b = head->second->data;
    if (embedding.dtype == head->second->dtype && a.size() == b.size() &&
        std::memcmp(a.data(), b.data(), a.size()) == 0) {
      result_.skipped.push_back({head->second->name, "equal to the embedding it is tied to"});
      by_name_.erase(head);
    } else {
      notes_.push_back(
          "tie_word_embeddings is true, but lm_head.weight differs from the embedding; it is kept");
    }
  }

  void assign(const std::string& name, const SafetensorsEntry& entry) {
    Place place;
    if (const auto layer = split_layer(name)) {
      if (layer->first < sizes_.n_layers) {
        place.layer = layer->first;
        place.rule = find_rule(family_.rules_of(sizes_, place.layer), layer->second);
      }
    } else {
      place.rule = find_rule(family_.global_rules, name);
    }
    if (place.rule == nullptr) {
      unknown_.push_back(entry.name);
      return;
    }
    const TensorRule& rule = *place.rule;
    const bool is_matrix = place.layer >= 0 && rule.cols != Dim::kNone;
    HfWeight weight = open_hf_weight(file_, entry, quantization_, is_matrix);
    check_shape(config_, entry, weight.shape, rule, sizes_);
    if (rule.cols == Dim::kNone && rule.order != RowOrder::kAsIs)
      weight.rows = safetensors_rows(entry, weight.shape[0], 1);
    for (size_t i = 1; i < weight.sources.size(); ++i)
      used_scales_.insert(weight.sources[i]);
    OutputTensor tensor = make_tensor(rule, place.layer, sizes_, std::move(weight));
    std::string key = tensor.name;
    made_.emplace(std::move(key), std::move(tensor));
  }

  void fail_on_unknown() {
    std::erase_if(unknown_, [&](const std::string& name) { return used_scales_.contains(name); });
    if (unknown_.empty()) return;
    throw FormatError(
        fmt::format("{}: {} tensors have no place in the {} architecture: {}\n"
                    "the checkpoint is of another kind than its settings say",
                    file_.tensors().front().file.parent_path().string(), unknown_.size(),
                    family_.architecture, list_names(unknown_)));
  }

  void add_in_order() {
    std::vector<std::string> missing;
    const auto add = [&](const TensorRule& rule, int64_t layer) {
      const auto found = made_.find(output_name(rule, layer));
      if (found != made_.end()) {
        result_.tensors.push_back(std::move(found->second));
      } else if (rule.presence == Presence::kRequired) {
        missing.push_back(input_name(rule, layer));
      }
    };
    for (const TensorRule& rule : family_.global_rules)
      add(rule, -1);
    for (int64_t layer = 0; layer < sizes_.n_layers; ++layer) {
      for (const TensorRule& rule : family_.rules_of(sizes_, layer))
        add(rule, layer);
    }
    if (missing.empty()) return;
    throw FormatError(fmt::format("{}: {} tensors are missing: {}\nthe download is incomplete",
                                  file_.tensors().front().file.parent_path().string(),
                                  missing.size(), list_names(missing)));
  }

  const Safetensors& file_;
  const HfConfig& config_;
  const HfFamily& family_;
  const HfQuantization& quantization_;
  HfSizes& sizes_;
  std::vector<std::string>& notes_;
  std::map<std::string, const SafetensorsEntry*> by_name_;
  std::map<std::string, OutputTensor> made_;
  std::set<std::string> used_scales_;
  std::vector<std::string> unknown_;
  HfTensors result_;
};

}  // namespace

std::string plain_tensor_name(std::string_view name) {
  std::string plain(name);
  constexpr std::string_view kInner = "language_model.";
  if (const size_t at = plain.find(kInner); at != std::string::npos) plain.erase(at, kInner.size());
  for (const std::string_view start : {"layers.", "embed_tokens.", "norm."}) {
    if (plain.starts_with(start)) return "model." + plain;
  }
  return plain;
}

std::string_view skip_reason(std::string_view name) {
  for (const std::string_view start :
       {"model.visual.", "visual.", "vision_tower.", "model.vision_tower.",
        "multi_modal_projector.", "model.multi_modal_projector."}) {
    if (name.starts_with(start)) return "not part of the language model";
  }
  for (const std::string_view part : {"audio_", "vision_", "projector.", "patch_embed"}) {
    if (name.find(part) != std::string_view::npos) return "not part of the language model";
  }
  for (const std::string_view start : {"mtp.", "model.mtp."}) {
    if (name.starts_with(start)) return "for multi-token prediction, which is not used";
  }
  for (const std::string_view end :
       {".attention.masked_bias", ".attention.bias", ".rotary_emb.inv_freq"}) {
    if (name.ends_with(end)) return "a buffer that is computed anew";
  }
  return {};
}

HfTensors map_hf_tensors(const Safetensors& file, const HfConfig& config, const HfFamily& family,
                         const HfQuantization& quantization, HfSizes& sizes,
                         std::vector<std::string>& notes) {
  return Mapper(file, config, family, quantization, sizes, notes).run();
}

}  // namespace ts
