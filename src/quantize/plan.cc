#include "quantize/plan.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <tensorsharp/error.hpp>

#include "base/cpu_topology.h"
#include "base/quote_text.h"
#include "base/thread_pool.h"
#include "codec/block_check.h"
#include "hadamard/transform.h"
#include "model/arch/registry.h"
#include "model/hadamard_contract.h"
#include "quantize/ordinary_basis.h"
#include "quantize/weight_profile.h"

namespace ts {
namespace {

constexpr std::string_view kEmbedding = "token_embd.weight";
constexpr std::string_view kHead = "output.weight";
/// Below these numbers of weights the embedding and the output matrix matter so much that they get
/// 8 and 6 bits; above, 4.
constexpr int64_t kSmallModel = 1'000'000'000;
constexpr int64_t kMediumModel = 8'000'000'000;
constexpr double kLeastKeptBits = 4.0;
constexpr double kMostKeptBits = 8.5;

/// Sign seeds tried for each width, on at most so many matrices.
constexpr uint64_t kSeedTrials = 6;
constexpr size_t kSearchedMatrices = 16;

/// Architectures whose rotated files the vendor's own engine loads.
constexpr std::string_view kVendorArchitectures[] = {"llama", "qwen3", "qwen35"};

int64_t layer_of(std::string_view name) {
  if (!name.starts_with("blk.")) return -1;
  name.remove_prefix(4);
  int64_t layer = -1;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), layer);
  return error == std::errc() && end != name.data() + name.size() && *end == '.' ? layer : -1;
}

TensorRole role_of(const OutputTensor& tensor) {
  if (tensor.name == kEmbedding) return TensorRole::kEmbedding;
  if (tensor.shape.n_dims != 2 || tensor.shape.n_rows() < 2) return TensorRole::kOther;
  if (tensor.name == kHead) return TensorRole::kHead;
  return may_list_rotated_input(tensor.name) ? TensorRole::kLinear : TensorRole::kOther;
}

/// Remarks that many tensors share, told once.
class Remarks {
 public:
  void add(const std::string& reason, const std::string& tensor) {
    auto& entry = reasons_[reason];
    if (entry.first++ == 0) entry.second = tensor;
  }
  void tell(std::vector<std::string>& notes) const {
    for (const auto& [reason, entry] : reasons_)
      notes.push_back(
          fmt::format("{}{}: {}", entry.second,
                      entry.first > 1 ? fmt::format(" and {} more", entry.first - 1) : "", reason));
  }

 private:
  std::map<std::string, std::pair<size_t, std::string>> reasons_;
};

bool is_float(const Codec& codec) {
  return codec.exactness == Exactness::kExact || codec.exactness == Exactness::kRounded;
}

class Planner {
 public:
  Planner(ModelSource& source, const std::string& input, const QuantizeOptions& options,
          const Progress& progress)
      : source_(source),
        input_(input),
        options_(options),
        progress_(progress),
        policy_(options.policy.empty() ? default_policy() : read_policy(options.policy)) {}

  QuantizePlan run() {
    read_options();
    check_source();
    unrotate_source();
    absorb_source();
    plan_.metadata = std::move(source_.metadata);
    plan_.alignment = source_.alignment;
    plan_.notes.insert(plan_.notes.end(), source_.notes.begin(), source_.notes.end());
    for (OutputTensor& tensor : source_.tensors)
      n_weights_ += tensor.shape.n_elems();
    for (const OutputTensor& tensor : source_.tensors) {
      // Blocks that guess further tokens ahead take no part in a forward pass.
      if (tensor.name.find(".nextn.") != std::string::npos)
        prediction_layers_.insert(layer_of(tensor.name));
    }
    for (OutputTensor& tensor : source_.tensors) {
      progress_("plan", 0, 0);
      add(std::move(tensor));
    }
    source_.tensors.clear();
    check_matched();
    // The order in which layers are computed is the order in which they are written.
    std::stable_sort(
        plan_.tensors.begin(), plan_.tensors.end(),
        [](const PlannedTensor& a, const PlannedTensor& b) { return a.layer < b.layer; });
    choose_rotations();
    finish_metadata();
    remarks_.tell(plan_.notes);
    return std::move(plan_);
  }

 private:
  void read_options() {
    plan_.main = find_codec(std::string_view(options_.scheme));
    if (plan_.main == nullptr || plan_.main->encode == nullptr)
      throw InvalidArgument(fmt::format("--scheme {}: no weight type that can be written",
                                        quote_text(options_.scheme)));
    const bool calibrated = !options_.calibration.empty();
    plan_.method =
        options_.method.value_or(calibrated ? TernaryMethod::kGptq : TernaryMethod::kMse);
    if (options_.rotate == "auto" || options_.rotate == "none" || options_.rotate == "absorbed")
      return;
    int64_t block = 0;
    const char* end = options_.rotate.data() + options_.rotate.size();
    const auto [at, error] = std::from_chars(options_.rotate.data(), end, block);
    if (error != std::errc() || at != end || block < 2 || !is_transform_block(block))
      throw InvalidArgument(fmt::format(
          "--rotate {}: expected auto, none, absorbed or a block size, a power of two from 2 to {}",
          quote_text(options_.rotate), kMaxTransformBlock));
    block_ = block;
  }

  void check_source() const {
    if (find_architecture(source_.architecture) == nullptr) {
      std::vector<std::string_view> names;
      for (const Architecture& a : all_architectures())
        names.push_back(a.name);
      throw Unsupported(fmt::format("{}: architecture {} cannot be quantized; known are {}", input_,
                                    quote_text(source_.architecture), fmt::join(names, ", ")));
    }
    const std::string type = source_.metadata.get_string("general.type").value_or("model");
    if (type != "model")
      throw Unsupported(
          fmt::format("{}: general.type is {}, expected a model", input_, quote_text(type)));
  }

  /// A source that is stored rotated or in planes is read as the weights it stands for.
  void unrotate_source() {
    changed_ = to_ordinary_basis(source_, progress_);
    for (const std::string& name : changed_) {
      if (!options_.unrotate && find_codec(source_.gguf->find(name)->type)->is_ternary())
        throw Unsupported(fmt::format(
            "{}: {} is ternary and rotated already; `convert --scheme` changes how such "
            "weights are packed, without any loss, and `convert --unrotate` writes "
            "ordinary weights",
            input_, quote_text(name)));
    }
    if (options_.unrotate && changed_.empty())
      throw InvalidArgument(fmt::format(
          "{}: is stored in the ordinary basis already; nothing is to be unrotated", input_));
    if (!changed_.empty())
      plan_.notes.push_back(fmt::format(
          "{} matrices of the input are stored rotated or in several planes; the ordinary weights "
          "they stand for were used",
          changed_.size()));
  }

  /// Turns the source into a model that computes the same with rotated weights.
  void absorb_source() {
    if (options_.rotate != "absorbed") return;
    plan_.absorbed = absorb_rotation(source_, input_, options_.seed);
    for (const OutputTensor& tensor : source_.tensors) {
      if (tensor.packed.empty()) changed_.insert(tensor.name);
    }
    if (plan_.absorbed.stream_block == 0)
      plan_.notes.push_back(
          "the residual stream is not rotated, because norms stand behind attention and "
          "feed-forward; only the inputs of attn_output are");
    plan_.notes.push_back(
        "inputs of ffn_down are not rotated: a product of two nonlinear branches cannot absorb it");
    if (plan_.absorbed.made_output_matrix)
      plan_.notes.push_back(
          "the embedding also served as output matrix; with the gains of the last norm absorbed, "
          "the file has an output matrix of its own");
  }

  void add(OutputTensor tensor) {
    PlannedTensor planned;
    planned.layer = layer_of(tensor.name);
    if (!prediction_layers_.contains(planned.layer)) planned.role = role_of(tensor);
    plan_.n_layers = std::max(plan_.n_layers, static_cast<int>(planned.layer) + 1);
    has_head_ = has_head_ || planned.role == TensorRole::kHead;
    tensor.codec = tensor.kept;
    planned.tensor = std::move(tensor);
    planned.absorbed = plan_.absorbed.inputs.contains(planned.tensor.name);
    if (planned.role != TensorRole::kOther) choose_type(planned);
    plan_.tensors.push_back(std::move(planned));
  }

  void choose_type(PlannedTensor& planned) {
    OutputTensor& tensor = planned.tensor;
    const PolicyRule* rule = policy_.find(tensor.name);
    if (rule == nullptr) {
      unmatched_.push_back(tensor.name);
      return;
    }
    rules_[tensor.name] = rule;
    if (rule->scheme == "keep") {
      if (changed_.contains(tensor.name)) tensor.codec = &require_codec(TypeId::kF16, tensor.name);
      return;
    }
    if (rule->scheme == "auto") {
      const double bits = tensor.kept->bits_per_weight();
      if (!is_float(*tensor.kept) && bits >= kLeastKeptBits && bits <= kMostKeptBits)
        return;  // encoding it anew could only lose
      tensor.codec = fitting(automatic(tensor), planned);
      return;
    }
    const Codec& wanted = rule->scheme == "main" ? *plan_.main : *find_codec(rule->scheme);
    tensor.codec = fitting(wanted, planned);
    if (!tensor.codec->is_ternary()) return;
    if (is_ternary_already(tensor, *tensor.codec)) {
      remarks_.add("ternary already, kept exactly and not rotated", tensor.name);
      planned.remark = "ternary already";
      return;
    }
    planned.fit = true;
    planned.options.method = rule->method.value_or(plan_.method);
    if (planned.options.method == TernaryMethod::kGptq) {
      if (options_.calibration.empty())
        throw InvalidArgument("method gptq needs texts to calibrate with: give --calib FILE");
      if (planned.role != TensorRole::kLinear) planned.options.method = TernaryMethod::kMse;
    }
    planned.options.threshold = options_.threshold;
    planned.options.search_threshold = options_.search_threshold;
    planned.options.group = tensor.codec->group_elems;
    planned.options.n_planes = rule->planes.value_or(options_.n_planes);
    planned.planes_fixed = rule->planes.has_value();
    planned.options.plane_fit = options_.plane_fit;
    planned.options.sparsity = rule->sparsity.value_or(options_.sparsity);
    if (planned.role == TensorRole::kEmbedding && planned.options.n_planes > 1) {
      planned.options.n_planes = 1;
      remarks_.add("embeddings have one plane", tensor.name);
    }
    const bool has_metric = planned.role == TensorRole::kLinear && !options_.calibration.empty();
    check_options(planned.options, tensor.shape.n_rows(), tensor.shape[0], has_metric);
  }

  /// Of the embedding and the output matrix.
  const Codec& automatic(const OutputTensor& tensor) const {
    const bool wide = tensor.shape[0] % 256 == 0;
    if (n_weights_ >= kMediumModel && wide) return require_codec(TypeId::kQ4_K, tensor.name);
    if (n_weights_ >= kSmallModel && wide) return require_codec(TypeId::kQ6_K, tensor.name);
    return require_codec(TypeId::kQ8_0, tensor.name);
  }

  /// `wanted`, or what takes its place where its blocks do not divide the width.
  const Codec* fitting(const Codec& wanted, PlannedTensor& planned) {
    const int64_t width = planned.tensor.shape[0];
    if (width % wanted.block_elems == 0) return &wanted;
    if (options_.no_fallback)
      throw Unsupported(fmt::format(
          "{}: {} has rows of {} values, which are no whole number of {} blocks of {}\n"
          "without --no-fallback another type is used for it; or give it one in a policy file",
          input_, quote_text(planned.tensor.name), width, wanted.name, wanted.block_elems));
    const Codec* instead = nullptr;
    const TypeId ternary[] = {TypeId::kQ2_0, TypeId::kQ8_0, TypeId::kF16};
    for (const TypeId id : std::span(ternary).subspan(wanted.is_ternary() ? 0 : 1)) {
      const Codec& codec = require_codec(id, planned.tensor.name);
      if (codec.id == wanted.id || width % codec.block_elems != 0) continue;
      instead = &codec;
      break;
    }
    planned.remark = fmt::format(
        "rows of {} values are no whole number of {} blocks of {}; stored as {}, {} "
        "bits per weight instead of {}",
        width, wanted.name, wanted.block_elems, instead->name, instead->bits_per_weight(),
        wanted.bits_per_weight());
    remarks_.add(planned.remark, planned.tensor.name);
    return instead;
  }

  /// Nothing has to be fitted to weights that were ternary from the start, and a rotation would
  /// spoil them.
  static bool is_ternary_already(const OutputTensor& tensor, const Codec& codec) {
    std::vector<float> row(static_cast<size_t>(tensor.rows->n_cols()));
    bool exact = true;
    for (int64_t r = 0; exact && r < tensor.rows->n_rows(); ++r) {
      tensor.rows->read_row(r, row);
      exact = represents_exactly(codec, row);
    }
    tensor.rows->release();
    return exact;
  }

  void check_matched() const {
    if (!unmatched_.empty()) {
      const size_t n_shown = std::min<size_t>(unmatched_.size(), 4);
      throw InvalidArgument(fmt::format(
          "{}: no rule of policy {} matches {}{}\nadd a last rule {{\"match\": \"*\", \"scheme\": "
          "\"keep\"}} for all others",
          input_, quote_text(policy_.name),
          fmt::join(unmatched_.begin(), unmatched_.begin() + static_cast<ptrdiff_t>(n_shown), ", "),
          unmatched_.size() > n_shown ? fmt::format(" and {} more", unmatched_.size() - n_shown)
                                      : ""));
    }
    const bool any =
        std::any_of(plan_.tensors.begin(), plan_.tensors.end(),
                    [](const PlannedTensor& t) { return t.role == TensorRole::kLinear; });
    if (!any) throw Unsupported(fmt::format("{}: there is no matrix to quantize", input_));
  }

  /// Whether a matrix is to be rotated if its width allows it.
  bool wants_rotation(const PlannedTensor& t) const {
    if (t.role == TensorRole::kOther || options_.rotate == "none" || options_.rotate == "absorbed")
      return false;
    const auto found = rules_.find(t.tensor.name);
    if (found == rules_.end()) return false;
    if (t.remark == "ternary already") return false;
    if (found->second->rotate) return *found->second->rotate;
    if (t.tensor.codec->is_ternary()) return true;
    // A block that was asked for turns every matrix of a file without ternary ones.
    return block_ > 0 && !plan_.main->is_ternary() && found->second->scheme != "keep" && !t.fit &&
           t.tensor.codec == plan_.main;
  }

  void choose_rotations() {
    std::vector<RotationCandidate> candidates;
    for (const PlannedTensor& t : plan_.tensors) {
      if (wants_rotation(t)) candidates.push_back({t.tensor.name, t.tensor.shape[0]});
    }
    const int64_t block = block_ > 0 ? block_ : automatic_block(candidates);
    plan_.rotations = RotationSet(candidates.empty() ? 0 : block, options_.seed, recurrent_heads());
    if (plan_.rotations.block() == 0) {
      if (!candidates.empty())
        plan_.notes.push_back("no width is a multiple of 64: nothing is rotated");
      return;
    }
    if (options_.search_rotation) search_signs();
    PlannedTensor* embedding = nullptr;
    for (PlannedTensor& t : plan_.tensors) {
      if (!wants_rotation(t)) continue;
      const int64_t width = t.tensor.shape[0];
      if (block_ == 0 && width % plan_.rotations.block() != 0) {
        remarks_.add(fmt::format("not rotated: the width {} is no multiple of the block {}", width,
                                 plan_.rotations.block()),
                     t.tensor.name);
        continue;
      }
      if (t.role == TensorRole::kEmbedding) {
        embedding = &t;
        continue;
      }
      t.rotation = plan_.rotations.add_input(t.tensor.name, width);
    }
    if (embedding != nullptr && !plan_.rotations.empty())
      embedding->rotation = plan_.rotations.add_embedding(embedding->tensor.shape[0], !has_head_);
    if (plan_.rotations.empty()) return;
    declare_rotation(plan_.rotations.declaration(), plan_.metadata);
    if (std::find(std::begin(kVendorArchitectures), std::end(kVendorArchitectures),
                  source_.architecture) == std::end(kVendorArchitectures))
      plan_.notes.push_back(fmt::format("rotated files of architecture {} run in TensorSharp only",
                                        source_.architecture));
  }

  /// Of each width, the signs of the seed whose plain fit of a sample of rows is best.
  void search_signs() {
    ThreadPool pool(options_.n_threads > 0 ? options_.n_threads : default_threads().n_threads);
    std::map<int64_t, std::vector<const PlannedTensor*>> by_width;
    for (const PlannedTensor& t : plan_.tensors) {
      if (t.fit && wants_rotation(t) && t.tensor.shape[0] % plan_.rotations.block() == 0)
        by_width[t.tensor.shape[0]].push_back(&t);
    }
    for (const auto& [width, tensors] : by_width) {
      const size_t count = std::min(kSearchedMatrices, tensors.size());
      double best = 0, sum = 0;
      uint64_t best_seed = options_.seed;
      for (uint64_t trial = 0; trial < kSeedTrials; ++trial) {
        progress_("searching signs", trial, kSeedTrials);
        const uint64_t seed = options_.seed + trial;
        const Rotation rotation(width, plan_.rotations.block(), random_signs(seed, width));
        double error = 0;
        for (size_t i = 0; i < count; ++i)
          error += plain_fit_error(*tensors[i * tensors.size() / count], &rotation, pool);
        error /= static_cast<double>(count);
        sum += error;
        if (trial == 0 || error < best) {
          best = error;
          best_seed = seed;
        }
      }
      plan_.rotations.use_seed(width, best_seed);
      plan_.notes.push_back(
          fmt::format("width {}: signs of seed {}, best of {} (relative error {:.5f}, mean {:.5f})",
                      width, best_seed, kSeedTrials, best, sum / kSeedTrials));
    }
  }

  std::optional<RecurrentHeads> recurrent_heads() const {
    const auto read = [&](std::string_view key) {
      return plan_.metadata.get_int(fmt::format("{}.{}", source_.architecture, key), 1,
                                    int64_t{1} << 31);
    };
    const auto value = read("ssm.time_step_rank"), keys = read("ssm.group_count");
    if (!value || !keys || *value % *keys != 0) return std::nullopt;
    return RecurrentHeads{*keys, *value};
  }

  void finish_metadata() {
    std::vector<OutputTensor> typed;
    for (const PlannedTensor& t : plan_.tensors) {
      OutputTensor copy;
      copy.codec = t.tensor.codec;
      copy.shape = t.tensor.shape;
      typed.push_back(std::move(copy));
    }
    // Named after the layers' type, not after the embedding that outweighs them in small models.
    if (plan_.main->file_type >= 0) {
      plan_.metadata.set("general.file_type",
                         MetadataValue::u32(static_cast<uint32_t>(plan_.main->file_type)));
    } else if (const auto type = file_type_of(typed)) {
      plan_.metadata.set("general.file_type", MetadataValue::u32(*type));
    }
    plan_.metadata.set("general.quantization_version", MetadataValue::u32(2));
    if (plan_.alignment == 32) plan_.metadata.erase("general.alignment");  // what absence means
  }

  ModelSource& source_;
  const std::string& input_;
  const QuantizeOptions& options_;
  const Progress& progress_;
  Policy policy_;
  QuantizePlan plan_;
  int64_t block_ = 0;  ///< asked for; 0 = automatic
  int64_t n_weights_ = 0;
  bool has_head_ = false;
  std::set<std::string> changed_;  ///< in another basis than the source stores them
  std::set<int64_t> prediction_layers_;
  std::map<std::string, const PolicyRule*> rules_;
  std::vector<std::string> unmatched_;
  Remarks remarks_;
};

}  // namespace

int QuantizePlan::max_planes() const noexcept {
  int most = 1;
  for (const PlannedTensor& t : tensors)
    most = std::max(most, t.n_planes());
  return most;
}

QuantizePlan plan_quantization(ModelSource& source, const std::string& input,
                               const QuantizeOptions& options, const Progress& progress) {
  return Planner(source, input, options, progress).run();
}

}  // namespace ts
