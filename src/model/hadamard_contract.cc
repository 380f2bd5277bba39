#include "model/hadamard_contract.h"

#include <algorithm>
#include <array>
#include <span>
#include <utility>
#include <variant>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <tensorsharp/error.hpp>

#include "base/log.h"
#include "base/quote_text.h"
#include "codec/codec.h"
#include "hadamard/transform.h"
#include "model/required_features.h"
#include "model/size_limits.h"

namespace ts {
namespace {

constexpr std::string_view kPrefix = "prism.hadamard.";
constexpr std::string_view kOutputPrefix = "tensorsharp.hadamard.output.";
constexpr std::string_view kEmbedding = "token_embd.weight";
constexpr std::string_view kHead = "output.weight";
constexpr std::string_view kTransform = "normalized-sylvester-walsh-hadamard";
constexpr std::string_view kAxis = "input-last-dimension";

constexpr std::array<std::string_view, 11> kKeys = {
    "version",       "block_size",   "transform",
    "axis",          "sign_mode",    "sign_widths",
    "sign_values",   "weight_names", "inverse_weight_names",
    "gdn_v_grouped", "tied_output"};

constexpr std::array<std::string_view, 2> kOutputKeys = {"block_size", "weight_names"};

/// Kinds of layer matrices that may be listed at all; the tensor loader further insists that the
/// architecture really rotates the input of each listed one.
constexpr std::array<std::string_view, 17> kKinds = {
    "attn_q",         "attn_k",        "attn_v",           "attn_qkv",       "attn_gate",
    "attn_output",    "ffn_gate",      "ffn_up",           "ffn_down",       "ffn_gate_exps",
    "ffn_up_exps",    "ffn_down_exps", "ffn_gate_up_exps", "ffn_gate_shexp", "ffn_up_shexp",
    "ffn_down_shexp", "ssm_out"};

/// Architectures whose matrices all go through Linear here.
constexpr std::array<std::string_view, 5> kArchitectures = {"llama", "qwen2", "qwen3", "gemma3",
                                                            "qwen35"};

constexpr int64_t kMaxCount = int64_t{1} << 31;
// Bounds on the signs, far above any model: those that no matrix uses cost memory all the same.
constexpr size_t kMaxSignWidths = 64;
constexpr size_t kMaxSigns = size_t{1} << 26;

bool is_unknown(std::string_view key, std::string_view prefix,
                std::span<const std::string_view> known) {
  key.remove_prefix(prefix.size());
  return std::find(known.begin(), known.end(), key) == known.end();
}

}  // namespace

/// "output.weight" or "blk.<digits>.<kind>.weight".
bool may_list_rotated_input(std::string_view name) noexcept {
  if (name == kHead) return true;
  if (!name.starts_with("blk.") || !name.ends_with(".weight")) return false;
  name.remove_prefix(4);
  name.remove_suffix(7);
  const size_t dot = name.find('.');
  if (dot == 0 || dot == std::string_view::npos) return false;
  const std::string_view number = name.substr(0, dot), kind = name.substr(dot + 1);
  return std::all_of(number.begin(), number.end(), [](char c) { return c >= '0' && c <= '9'; }) &&
         std::find(kKinds.begin(), kKinds.end(), kind) != kKinds.end();
}

/// Reads one file's keys; every check of the contract is here, in its order.
class ContractReader {
 public:
  explicit ContractReader(const GgufFile& file) : file_(file), md_(file.metadata()) {}

  std::shared_ptr<const HadamardContract> read() {
    bool has_input = false, has_output = false;
    std::vector<std::string> unknown;
    for (const auto& [key, value] : md_.entries()) {
      const bool input = key.starts_with(kPrefix), output = key.starts_with(kOutputPrefix);
      if ((input && is_unknown(key, kPrefix, kKeys)) ||
          (output && is_unknown(key, kOutputPrefix, kOutputKeys)))
        unknown.push_back(quote_text(key));
      has_input = has_input || input;
      has_output = has_output || output;
    }
    check_requirement(has_output);
    if (!has_input && !has_output) {
      warn_if_unstated();
      return nullptr;
    }
    if (!unknown.empty()) {
      constexpr size_t kShown = 5;
      const auto shown = std::span(unknown).first(std::min(kShown, unknown.size()));
      log_warning(fmt::format(
          "{}: unknown keys {}{}: ignored, as the stated version does not need them", md_.source(),
          fmt::join(shown, ", "),
          unknown.size() > kShown ? fmt::format(" and {} more", unknown.size() - kShown) : ""));
    }
    read_architecture();
    if (has_input) read_input();
    if (has_output) read_output();
    return std::shared_ptr<const HadamardContract>(std::move(contract_));
  }

 private:
  struct HeadCounts {
    int64_t value_heads = 0, key_heads = 0;
  };

  static std::string key(std::string_view name) { return std::string(kPrefix) + std::string(name); }
  [[noreturn]] void fail(std::string_view name, const std::string& what) const {
    throw FormatError(
        fmt::format("{}: {}: {}\nthe weights are stored rotated and would give nonsense without a "
                    "valid rotation; "
                    "download or convert the file again",
                    md_.source(), name, what));
  }
  [[noreturn]] void unsupported(std::string_view name, const std::string& what) const {
    throw Unsupported(fmt::format(
        "{}: {}: {}\nthe weights are stored rotated and would give nonsense without this rotation; "
        "a newer version may know it",
        md_.source(), name, what));
  }

  /// Output-side rotations and the feature that stands for them: both, or neither.
  void check_requirement(bool has_output) const {
    const std::vector<std::string> features = read_required_features(md_);
    const bool required =
        std::find(features.begin(), features.end(), kRequiresOutputRotation) != features.end();
    if (required == has_output) return;
    if (required)
      fail("tensorsharp.requires",
           fmt::format("names {}, but the keys {}* are missing; they were lost in a conversion",
                       kRequiresOutputRotation, kOutputPrefix));
    fail("tensorsharp.requires", fmt::format("does not name {}, which a file with {}* keys needs",
                                             kRequiresOutputRotation, kOutputPrefix));
  }

  /// Matrices of the types made for rotated weights, in a file that does not say they are rotated.
  void warn_if_unstated() const {
    for (const TensorEntry& t : file_.tensors()) {
      if (t.type != TypeId::kPQ2_0 && t.type != TypeId::kPTQ1_0) continue;
      log_warning(fmt::format("{}: {} weights without prism.hadamard.* keys: taken as not rotated",
                              md_.source(), type_name(t.type)));
      return;
    }
  }

  void read_architecture() {
    architecture_ = md_.get_string("general.architecture").value_or("");
    if (std::find(kArchitectures.begin(), kArchitectures.end(), architecture_) ==
        kArchitectures.end())
      unsupported("general.architecture",
                  fmt::format("rotated weights are supported for {}, not for {}",
                              fmt::join(kArchitectures, ", "), quote_text(architecture_)));
  }

  std::string require_word(std::string_view name) const {
    const auto word = md_.get_string(key(name));
    if (!word) fail(key(name), "the key is missing");
    return *word;
  }

  void read_input() {
    const auto version = md_.get_int(key("version"), INT64_MIN, INT64_MAX);
    if (!version)
      fail(key("version"), "the key is missing, but other prism.hadamard.* keys are there");
    if (*version != 1 && *version != 2)
      unsupported(key("version"), fmt::format("found {}, expected 1 or 2", *version));
    contract_->tied_ = md_.get_bool(key("tied_output")).value_or(false);
    if ((*version == 2) != contract_->tied_)
      fail(key("tied_output"), fmt::format("found {} in a file of version {}, expected {}",
                                           contract_->tied_, *version, *version == 2));
    contract_->block_ = read_block(key("block_size"));
    if (const std::string word = require_word("transform"); word != kTransform)
      unsupported(key("transform"),
                  fmt::format("found {}, expected {}", quote_text(word), kTransform));
    if (const std::string word = require_word("axis"); word != kAxis)
      unsupported(key("axis"), fmt::format("found {}, expected {}", quote_text(word), kAxis));
    read_signs();
    const std::vector<std::string> names = read_names(key("weight_names"), true);
    const std::vector<std::string> inverse = read_names(key("inverse_weight_names"), false);
    contract_->grouped_ = md_.get_bool(key("gdn_v_grouped")).value_or(false);
    HeadCounts heads;
    if (contract_->grouped_) heads = read_heads();
    for (const std::string& name : names)
      add_input(name, heads);
    for (const std::string& name : inverse)
      add_embedding(name, names);
    check_head(!inverse.empty());
    contract_->n_inputs_ = names.size();
  }

  int64_t read_block(const std::string& name) const {
    const auto block = md_.get_int(name, INT64_MIN, INT64_MAX);
    if (!block) fail(name, "the key is missing");
    if (*block < 1 || (*block & (*block - 1)) != 0)
      fail(name, fmt::format("found {}, expected a positive power of two", *block));
    if (*block > kMaxTransformBlock)
      unsupported(name, fmt::format("found {}, expected at most {}", *block, kMaxTransformBlock));
    return *block;
  }

  void read_signs() {
    const std::string mode = require_word("sign_mode");
    const std::string widths_key = key("sign_widths"), values_key = key("sign_values");
    if (mode == "identity") {
      for (const std::string& name : {widths_key, values_key}) {
        if (md_.contains(name)) fail(name, "the key is there although sign_mode is identity");
      }
      return;
    }
    if (mode != "explicit")
      unsupported(key("sign_mode"),
                  fmt::format("found {}, expected identity or explicit", quote_text(mode)));
    contract_->explicit_signs_ = true;
    require_length(widths_key, kMaxSignWidths);
    require_length(values_key, kMaxSigns);
    const auto widths = md_.get_ints(widths_key, INT64_MIN, INT64_MAX);
    if (!widths || widths->empty())
      fail(widths_key, "the key is missing or empty, but sign_mode is explicit");
    const auto values = md_.get_ints(values_key, INT64_MIN, INT64_MAX);
    if (!values) fail(values_key, "the key is missing, but sign_mode is explicit");
    const auto have = static_cast<int64_t>(values->size());
    int64_t total = 0;
    for (const int64_t width : *widths) {
      if (width < 1 || width > kMaxWidth || width % contract_->block_ != 0)
        fail(widths_key, fmt::format("found a width of {}, expected a positive multiple of the "
                                     "block {}, at most {}",
                                     width, contract_->block_, kMaxWidth));
      if (signs_.contains(width))
        fail(widths_key, fmt::format("the width {} is listed twice", width));
      if (width > have - total)
        fail(values_key,
             fmt::format("found {} values, expected the sum of sign_widths, which is more", have));
      std::vector<int8_t>& signs = signs_[width];
      for (int64_t i = total; i < total + width; ++i) {
        const int64_t value = (*values)[static_cast<size_t>(i)];
        if (value != 1 && value != -1)
          fail(values_key, fmt::format("found {} at index {}, expected +1 or -1", value, i));
        signs.push_back(static_cast<int8_t>(value));
      }
      total += width;
    }
    if (total != have)
      fail(values_key,
           fmt::format("found {} values, expected the sum of sign_widths, {}", have, total));
    contract_->widths_ = *widths;
  }

  /// Before a list is copied.
  void require_length(const std::string& name, size_t most) const {
    const MetadataValue* value = md_.find(name);
    const auto* array = value == nullptr ? nullptr : std::get_if<MetadataArray>(&value->value);
    if (array != nullptr && array->size() > most)
      fail(name, fmt::format("found {} elements, expected at most {}", array->size(), most));
  }

  std::vector<std::string> read_names(const std::string& name, bool required) const {
    const std::vector<std::string>* names = md_.get_strings(name);
    if (!names || names->empty()) {
      if (required) fail(name, "the list is missing or empty");
      return {};
    }
    std::unordered_set<std::string_view> seen;
    for (const std::string& n : *names) {
      if (!seen.insert(n).second) fail(name, fmt::format("{} is listed twice", quote_text(n)));
    }
    return *names;
  }

  HeadCounts read_heads() const {
    const auto read = [&](std::string_view suffix) {
      const std::string name = architecture_ + std::string(suffix);
      const auto count = md_.get_int(name, INT64_MIN, INT64_MAX);
      if (!count) fail(name, "the key is missing, but prism.hadamard.gdn_v_grouped needs it");
      if (*count < 1 || *count > kMaxCount)
        fail(name, fmt::format("found {}, expected a positive number of heads", *count));
      return *count;
    };
    HeadCounts heads;
    heads.value_heads = read(".ssm.time_step_rank");
    heads.key_heads = read(".ssm.group_count");
    if (heads.value_heads % heads.key_heads != 0)
      fail(key("gdn_v_grouped"), fmt::format("{} value heads are no multiple of {} key heads",
                                             heads.value_heads, heads.key_heads));
    return heads;
  }

  /// The tensor of a listed name, checked to be a matrix (of experts where the name says so).
  const TensorEntry& require_matrix(const std::string& list, const std::string& name) const {
    const TensorEntry* entry = file_.find(name);
    if (entry == nullptr)
      fail(list, fmt::format("names {}, but the file has no such tensor", quote_text(name)));
    const int expected = name.ends_with("_exps.weight") ? 3 : 2;
    const Shape& shape = entry->shape;  // trailing dimensions of 1 do not count
    if (shape.n_dims < expected || shape[3] != 1 || (expected == 2 && shape[2] != 1))
      fail(list, fmt::format("names {}, which has shape {}, expected {} dimensions",
                             quote_text(name), entry->shape.to_string(), expected));
    return *entry;
  }

  void require_multiple(const std::string& list, const std::string& name, int64_t width,
                        int64_t block) const {
    if (width > 0 && width % block == 0) return;
    fail(list,
         fmt::format("names {}, whose width {} is no multiple of the block {}; blocks that fit: {}",
                     quote_text(name), width, block, fmt::join(fitting_blocks(width), ", ")));
  }

  std::shared_ptr<const Rotation> rotation(const std::string& list, const std::string& name,
                                           int64_t width, std::optional<GroupedHeads> grouped) {
    require_multiple(list, name, width, contract_->block_);
    std::span<const int8_t> signs;
    if (contract_->explicit_signs_) {
      const auto found = signs_.find(width);
      if (found == signs_.end())
        fail(key("sign_widths"),
             fmt::format("there are no signs for the width {} of {}", width, quote_text(name)));
      signs = found->second;
    }
    // One per width and order, so that all matrices reading the same rows share the rotated copy.
    auto& shared = made_[{width, grouped.has_value()}];
    if (!shared)
      shared = std::make_shared<const Rotation>(width, contract_->block_, signs, grouped);
    return shared;
  }

  /// Folded columns cannot be reordered, so converters leave them grouped and say so. A file that
  /// does not say it is legal, but more likely lost the key.
  void warn_if_tiled() {
    const auto value_heads = md_.get_int(architecture_ + ".ssm.time_step_rank", 1, kMaxCount);
    const auto key_heads = md_.get_int(architecture_ + ".ssm.group_count", 1, kMaxCount);
    if (warned_of_tiled_ || !value_heads || !key_heads || *value_heads == *key_heads) return;
    warned_of_tiled_ = true;
    log_warning(fmt::format(
        "{}: {} is absent or false, so the rotated ssm_out reads its heads in the order of the "
        "file; if the text is noise, the key was lost in a conversion",
        md_.source(), key("gdn_v_grouped")));
  }

  void add_input(const std::string& name, const HeadCounts& heads) {
    const std::string list = key("weight_names");
    if (!may_list_rotated_input(name))
      fail(list, fmt::format("names {}, whose input is never rotated", quote_text(name)));
    const int64_t width = require_matrix(list, name).shape[0];
    std::optional<GroupedHeads> grouped;
    if (contract_->grouped_ && name.find(".ssm_out.") != std::string::npos) {
      if (width % heads.value_heads != 0)
        fail(list, fmt::format("names {}, whose width {} is no multiple of the {} value heads",
                               quote_text(name), width, heads.value_heads));
      grouped = GroupedHeads{heads.key_heads, heads.value_heads / heads.key_heads,
                             width / heads.value_heads};
    }
    if (!contract_->grouped_ && name.find(".ssm_out.") != std::string::npos) warn_if_tiled();
    contract_->rotations_[name].input = rotation(list, name, width, grouped);
    contract_->names_.push_back(name);
  }

  void add_embedding(const std::string& name, const std::vector<std::string>& names) {
    const std::string list = key("inverse_weight_names");
    if (name != kEmbedding)
      fail(list, fmt::format("names {}, expected only {}", quote_text(name), kEmbedding));
    if (std::find(names.begin(), names.end(), name) != names.end())
      fail(list, fmt::format("names {}, which is in weight_names, too", quote_text(name)));
    const int64_t width = require_matrix(list, name).shape[0];
    contract_->rotations_[name].rows = rotation(list, name, width, std::nullopt);
    contract_->names_.push_back(name);
  }

  void check_head(bool embedding_rotated) const {
    const bool has_head = file_.find(kHead) != nullptr;
    if (contract_->tied_ && has_head)
      fail(key("tied_output"), "is true, but the file has a tensor output.weight");
    if (contract_->tied_ && !embedding_rotated)
      fail(key("tied_output"), "is true, but token_embd.weight is not in inverse_weight_names");
    if (embedding_rotated && !has_head && !contract_->tied_)
      fail(key("inverse_weight_names"),
           "names token_embd.weight, which serves as output matrix, too, but the file is not of "
           "version 2 with tied_output");
  }

  void read_output() {
    const std::string prefix(kOutputPrefix), list = prefix + "weight_names";
    contract_->output_block_ = read_block(prefix + "block_size");
    const std::vector<std::string> names = read_names(list, true);
    std::map<int64_t, std::shared_ptr<const Rotation>> made;
    for (const std::string& name : names) {
      if (!may_list_rotated_input(name))
        fail(list, fmt::format("names {}, whose output is never rotated", quote_text(name)));
      const int64_t width = require_matrix(list, name).shape[1];
      require_multiple(list, name, width, contract_->output_block_);
      auto& shared = made[width];
      if (!shared) shared = std::make_shared<const Rotation>(width, contract_->output_block_);
      if (!contract_->rotations_.contains(name)) contract_->names_.push_back(name);
      contract_->rotations_[name].output = shared;
    }
    contract_->n_outputs_ = names.size();
  }

  const GgufFile& file_;
  const Metadata& md_;
  std::string architecture_;
  bool warned_of_tiled_ = false;
  std::map<int64_t, std::vector<int8_t>> signs_;
  std::map<std::pair<int64_t, bool>, std::shared_ptr<const Rotation>> made_;
  std::unique_ptr<HadamardContract> contract_{new HadamardContract};
};

std::shared_ptr<const HadamardContract> HadamardContract::read(const GgufFile& file) {
  return ContractReader(file).read();
}

WeightRotations HadamardContract::rotations_of(std::string_view tensor) const {
  const auto found = rotations_.find(std::string(tensor));
  return found == rotations_.end() ? WeightRotations{} : found->second;
}

std::string HadamardContract::describe() const {
  std::string text;
  if (n_inputs_ > 0) {
    text = fmt::format("block {}, ", block_);
    text += explicit_signs_ ? fmt::format("signs for widths {}", fmt::join(widths_, ", "))
                            : std::string("no signs");
    const bool embedding = rotations_.contains(std::string(kEmbedding));
    text += fmt::format("; {} matrices{}{}{}", n_inputs_, embedding ? " and the embedding" : "",
                        tied_ ? " (also the output matrix)" : "",
                        grouped_ ? "; ssm_out over grouped heads" : "");
  }
  if (n_outputs_ > 0)
    text += fmt::format("{}output side of {} matrices, block {}", text.empty() ? "" : "; ",
                        n_outputs_, output_block_);
  return text;
}

void HadamardContract::warn_of_unlisted(const GgufFile& file,
                                        const std::unordered_set<std::string>& used) const {
  constexpr size_t kShown = 4;
  std::vector<std::string> shown;
  size_t count = 0;
  for (const TensorEntry& t : file.tensors()) {
    if (t.type != TypeId::kPQ2_0 && t.type != TypeId::kPTQ1_0) continue;
    if (t.shape.n_rows() < 2 || rotations_.contains(t.name) || !used.contains(t.name)) continue;
    if (++count <= kShown) shown.push_back(quote_text(t.name));
  }
  if (count == 0) return;
  log_warning(fmt::format(
      "{}: {} matrices of the types made for rotated weights are in no rotation list "
      "and taken as not rotated: {}{}",
      file.path().string(), count, fmt::join(shown, ", "), count > kShown ? ", ..." : ""));
}

void declare_rotation(const RotationDeclaration& declaration, Metadata& metadata) {
  const auto set = [&](std::string_view key, MetadataValue value) {
    metadata.set(std::string(kPrefix) + std::string(key), std::move(value));
  };
  std::vector<int64_t> widths, values;
  for (const auto& [width, signs] : declaration.signs) {
    widths.push_back(width);
    values.insert(values.end(), signs.begin(), signs.end());
  }
  set("version", MetadataValue::u32(declaration.tied ? 2 : 1));
  set("block_size", MetadataValue::u32(static_cast<uint32_t>(declaration.block)));
  set("transform", MetadataValue::string(std::string(kTransform)));
  set("axis", MetadataValue::string(std::string(kAxis)));
  set("sign_mode", MetadataValue::string("explicit"));
  set("sign_widths", MetadataValue::i32_array(std::move(widths)));
  set("sign_values", MetadataValue::i32_array(std::move(values)));
  set("weight_names", MetadataValue::strings(declaration.inputs));
  if (declaration.embedding)
    set("inverse_weight_names", MetadataValue::strings({std::string(kEmbedding)}));
  if (declaration.grouped) set("gdn_v_grouped", MetadataValue::boolean(true));
  if (declaration.tied) set("tied_output", MetadataValue::boolean(true));
}

}  // namespace ts
