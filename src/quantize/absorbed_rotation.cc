#include "quantize/absorbed_rotation.h"

#include <algorithm>
#include <bit>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include <tensorsharp/error.hpp>

#include "model/config.h"
#include "quantize/rotation_choice.h"
#include "quantize/unrotated_rows.h"

namespace ts {
namespace {

using RotationPtr = std::shared_ptr<const Rotation>;

int64_t largest_block(int64_t width) {
  return std::min(int64_t{1} << std::countr_zero(static_cast<uint64_t>(width)),
                  kLargestAutomaticBlock);
}

/// Columns times gains.
class ScaledColumns final : public RowSource {
 public:
  ScaledColumns(RowSourcePtr inner, std::vector<float> gains)
      : RowSource(inner->n_rows(), inner->n_cols()),
        inner_(std::move(inner)),
        gains_(std::move(gains)) {}
  void read_row(int64_t row, std::span<float> out) const override {
    inner_->read_row(row, out);
    for (size_t c = 0; c < out.size(); ++c)
      out[c] *= gains_[c];
  }
  void release() const noexcept override { inner_->release(); }

 private:
  RowSourcePtr inner_;
  std::vector<float> gains_;
};

/// R W: every row is a sum of a block of rows, so the matrix is computed as a whole and kept until
/// it is released.
class MixedRows final : public RowSource {
 public:
  MixedRows(RowSourcePtr inner, RotationPtr rotation)
      : RowSource(inner->n_rows(), inner->n_cols()),
        inner_(std::move(inner)),
        rotation_(std::move(rotation)) {}
  void read_row(int64_t row, std::span<float> out) const override {
    const std::lock_guard lock(mutex_);
    if (values_.empty()) compute();
    std::copy_n(values_.data() + static_cast<size_t>(row) * out.size(), out.size(), out.data());
  }
  void release() const noexcept override {
    const std::lock_guard lock(mutex_);
    values_ = {};
    inner_->release();
  }

 private:
  void compute() const {
    const auto rows = static_cast<size_t>(n_rows()), cols = static_cast<size_t>(n_cols());
    values_.resize(rows * cols);
    for (size_t r = 0; r < rows; ++r)
      inner_->read_row(static_cast<int64_t>(r), std::span(values_).subspan(r * cols, cols));
    // A few columns at a time, so that reading them down the rows stays in the cache.
    constexpr size_t kColumns = 16;
    std::vector<float> turned(kColumns * rows);
    for (size_t first = 0; first < cols; first += kColumns) {
      const size_t count = std::min(kColumns, cols - first);
      for (size_t r = 0; r < rows; ++r) {
        for (size_t c = 0; c < count; ++c)
          turned[c * rows + r] = values_[r * cols + first + c];
      }
      for (size_t c = 0; c < count; ++c)
        rotate_row(*rotation_, turned.data() + c * rows, turned.data() + c * rows);
      for (size_t r = 0; r < rows; ++r) {
        for (size_t c = 0; c < count; ++c)
          values_[r * cols + first + c] = turned[c * rows + r];
      }
    }
  }

  RowSourcePtr inner_;
  RotationPtr rotation_;
  mutable std::mutex mutex_;
  mutable std::vector<float> values_;
};

class Absorber {
 public:
  Absorber(ModelSource& source, const std::string& input, uint64_t seed)
      : source_(source), input_(input), seed_(seed) {}

  AbsorbedRotation run() {
    const std::string& architecture = source_.architecture;
    const bool inner_norms = architecture == "gemma3";
    if (architecture != "llama" && architecture != "qwen2" && architecture != "qwen3" &&
        !inner_norms)
      throw Unsupported(fmt::format(
          "{}: --rotate absorbed is defined for llama, qwen2, qwen3 and gemma3, not for {}", input_,
          architecture));
    const OutputTensor* embedding = find("token_embd.weight");
    if (embedding == nullptr)
      throw FormatError(fmt::format("{}: has no token_embd.weight", input_));
    const ModelConfig config =
        read_common_config(ConfigReader(source_.metadata, architecture), embedding->shape.n_rows());
    if (!inner_norms) turn_stream(config);
    turn_values(config);
    if (result_.stream_block == 0 && result_.value_block == 0)
      throw Unsupported(fmt::format("{}: no width of the model has a block of {} to rotate", input_,
                                    kSmallestAutomaticBlock));
    return std::move(result_);
  }

 private:
  OutputTensor* find(const std::string& name) {
    const auto found = std::find_if(source_.tensors.begin(), source_.tensors.end(),
                                    [&](const OutputTensor& t) { return t.name == name; });
    return found == source_.tensors.end() ? nullptr : &*found;
  }
  OutputTensor& require(const std::string& name) {
    OutputTensor* tensor = find(name);
    if (tensor == nullptr) throw FormatError(fmt::format("{}: has no {}", input_, name));
    return *tensor;
  }
  void set(OutputTensor& tensor, RowSourcePtr rows) {
    tensor.rows = std::move(rows);
    tensor.packed = {};
    tensor.kept = &require_codec(TypeId::kF32, tensor.name);
  }
  std::vector<float> take_gains(const std::string& norm) {
    OutputTensor& tensor = require(norm);
    std::vector<float> gains(static_cast<size_t>(tensor.rows->n_cols()));
    tensor.rows->read_row(0, gains);
    set(tensor, value_rows(std::vector<float>(gains.size(), 1.0F)));
    return gains;
  }
  /// y = W (R x), of an input that had these gains.
  void turn_input(OutputTensor& tensor, const std::vector<float>& gains) {
    set(tensor, rotated_rows(std::make_shared<ScaledColumns>(tensor.rows, gains), stream_));
    result_.inputs.insert(tensor.name);
  }
  /// y = R W x (+ R b).
  void turn_output(const std::string& name, const RotationPtr& rotation) {
    OutputTensor& matrix = require(name + ".weight");
    set(matrix, std::make_shared<MixedRows>(matrix.rows, rotation));
    if (OutputTensor* bias = find(name + ".bias")) set(*bias, rotated_rows(bias->rows, rotation));
  }

  void turn_stream(const ModelConfig& config) {
    const int64_t block = largest_block(config.d_model);
    if (block < kSmallestAutomaticBlock) return;
    result_.stream_block = block;
    stream_ = std::make_shared<const Rotation>(config.d_model, block,
                                               random_signs(seed_, config.d_model));
    for (int64_t i = 0; i < config.n_layers; ++i) {
      const std::string prefix = fmt::format("blk.{}.", i);
      const std::vector<float> attention = take_gains(prefix + "attn_norm.weight");
      for (const char* name : {"attn_q.weight", "attn_k.weight", "attn_v.weight"})
        turn_input(require(prefix + name), attention);
      const std::vector<float> feed_forward = take_gains(prefix + "ffn_norm.weight");
      for (const char* name : {"ffn_gate.weight", "ffn_up.weight"})
        turn_input(require(prefix + name), feed_forward);
      turn_output(prefix + "attn_output", stream_);
      turn_output(prefix + "ffn_down", stream_);
    }
    const std::vector<float> last = take_gains("output_norm.weight");
    if (find("output.weight") == nullptr) {
      OutputTensor head = require("token_embd.weight");
      head.name = "output.weight";
      source_.tensors.push_back(std::move(head));
      result_.made_output_matrix = true;
    }
    turn_input(require("output.weight"), last);
    OutputTensor& embedding = require("token_embd.weight");
    set(embedding, rotated_rows(embedding.rows, stream_));
  }

  void turn_values(const ModelConfig& config) {
    const int64_t dim = config.head_dim, block = largest_block(dim);
    if (block < kSmallestAutomaticBlock / 4) return;
    result_.value_block = block;
    // Query heads that share a value head see the same rotation.
    const std::vector<int8_t> head = random_signs(seed_ ^ 1, dim);
    const auto repeated = [&](int64_t n_heads) {
      std::vector<int8_t> signs;
      for (int64_t h = 0; h < n_heads; ++h)
        signs.insert(signs.end(), head.begin(), head.end());
      return std::make_shared<const Rotation>(n_heads * dim, block, signs);
    };
    for (int64_t i = 0; i < config.n_layers; ++i) {
      const LayerShape& shape = config.layers[static_cast<size_t>(i)];
      const std::string prefix = fmt::format("blk.{}.", i);
      turn_output(prefix + "attn_v", repeated(shape.n_kv_heads));
      OutputTensor& output = require(prefix + "attn_output.weight");
      set(output, rotated_rows(output.rows, repeated(shape.n_heads)));
      result_.inputs.insert(output.name);
    }
  }

  ModelSource& source_;
  const std::string& input_;
  uint64_t seed_;
  RotationPtr stream_;
  AbsorbedRotation result_;
};

}  // namespace

AbsorbedRotation absorb_rotation(ModelSource& source, const std::string& input, uint64_t seed) {
  return Absorber(source, input, seed).run();
}

}  // namespace ts
