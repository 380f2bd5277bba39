#include "quantize/tuning.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <unordered_map>

#include <fmt/format.h>

#include <tensorsharp/error.hpp>

#include "base/half.h"
#include "model/state.h"
#include "model/workspace.h"
#include "quantize/blas.h"
#include "quantize/distillation_loss.h"
#include "quantize/operation_gradients.h"
#include "quantize/tape_backend.h"
#include "quantize/unrotated_rows.h"

namespace ts {
namespace {

/// Adam (Kingma, Ba 2015), with a short memory because there are few steps.
constexpr double kMomentum = 0.9, kVariance = 0.95, kTiny = 1e-12;
constexpr int kWarmUp = 3;
/// Times that the holdout is looked at.
constexpr int kChecks = 4;
constexpr size_t kMostHoldout = 8;
constexpr int64_t kPieceRows = 64;
/// No scale or gain moves by more than this part.
constexpr float kMostChange = 0.5F;

/// Values that are tuned: each is its start times (1 + change).
struct Parameters {
  std::vector<float> start, change;
  std::vector<double> gradient;
  std::vector<float> mean, square;

  explicit Parameters(std::vector<float> values = {})
      : start(std::move(values)),
        change(start.size()),
        gradient(start.size()),
        mean(start.size()),
        square(start.size()) {}

  float value(size_t i) const noexcept { return start[i] * (1 + change[i]); }

  void step(double rate, int number) {
    const double first = 1 - std::pow(kMomentum, number);
    const double second = 1 - std::pow(kVariance, number);
    for (size_t i = 0; i < start.size(); ++i) {
      const double g = gradient[i] * static_cast<double>(start[i]);  // of `change`
      gradient[i] = 0;
      mean[i] = static_cast<float>(kMomentum * static_cast<double>(mean[i]) + (1 - kMomentum) * g);
      square[i] =
          static_cast<float>(kVariance * static_cast<double>(square[i]) + (1 - kVariance) * g * g);
      const double root = std::sqrt(static_cast<double>(square[i]) / second);
      if (!(root > kTiny)) continue;
      change[i] -= static_cast<float>(rate * (static_cast<double>(mean[i]) / first) / root);
      change[i] = std::clamp(change[i], -kMostChange, kMostChange);
    }
  }
};

/// A matrix whose scales are tuned.
struct TunedMatrix {
  const PlannedTensor* planned = nullptr;
  FittedTensor* fitted = nullptr;
  float* effective = nullptr;              ///< its values in the image
  std::vector<std::vector<int8_t>> codes;  ///< by plane, [rows, cols]
  std::vector<Parameters> scales;          ///< by plane, [rows, groups]
  int64_t rows() const { return planned->tensor.shape.n_rows(); }
  int64_t cols() const { return planned->tensor.shape[0]; }
  int64_t group() const { return planned->options.group; }
  int64_t groups() const { return (cols() + group() - 1) / group(); }
};

/// A norm or a bias.
struct TunedVector {
  const PlannedTensor* planned = nullptr;
  Parameters values;
  std::vector<float> now;
};

class Tuner : public GradientSink {
 public:
  Tuner(const QuantizePlan& plan, ModelImage& image, std::span<FittedTensor> fitted,
        const CalibrationTexts& texts, const HiddenStates& originals,
        const HiddenStates& holdout_originals, const TuneOptions& options, ThreadPool& pool,
        const Progress& progress)
      : plan_(plan),
        image_(image),
        texts_(texts),
        originals_(originals),
        holdout_originals_(holdout_originals),
        options_(options),
        pool_(pool),
        progress_(progress),
        d_model_(image.model().config().d_model),
        eps_(image.model().config().norm_eps),
        state_(image.tape(), image.model().state_layout(kSequenceTokens, KvType::kF32)),
        workspace_(image.tape(), image.model().workspace_layout(kSequenceTokens)) {
    blas::use_one_thread();
    read_matrices(fitted);
    read_vectors();
    read_output_matrix();
  }

  TuneResult run() {
    image_.fill_embedding(texts_.calibration.sequences);
    image_.fill_embedding(texts_.holdout.sequences);
    TuneResult result;
    result.kl_before = holdout_divergence();
    result.kl_after = result.kl_before;
    std::vector<Parameters> best;
    const std::vector<size_t> order = shuffled(originals_.size());
    size_t next = 0;
    for (int step = 1; step <= options_.steps; ++step) {
      progress_("tuning", static_cast<uint64_t>(step - 1), static_cast<uint64_t>(options_.steps));
      for (int s = 0; s < options_.sequences_per_step; ++s)
        learn(order[next++ % order.size()]);
      const double left = 1 - static_cast<double>(step - 1) / options_.steps;
      const double rate = options_.rate * left * std::min(1.0, static_cast<double>(step) / kWarmUp);
      for_all([&](Parameters& p) { p.step(rate, step); });
      refresh();
      const int interval = std::max(1, options_.steps / kChecks);
      if (step % interval != 0 && step != options_.steps) continue;
      const double kl = holdout_divergence();
      if (!(kl < result.kl_after)) continue;
      result.kl_after = kl;
      result.steps_kept = step;
      best.clear();
      for_all([&](Parameters& p) { best.push_back(p); });
    }
    if (result.steps_kept > 0) {
      size_t at = 0;
      for_all([&](Parameters& p) { p = best[at++]; });
      pack();
      for (TunedVector& v : vectors_) {
        for (size_t i = 0; i < v.now.size(); ++i)
          v.now[i] = v.values.value(i);
        result.vectors[v.planned->tensor.name] = v.now;
      }
    }
    for (int64_t layer = 0; layer < image_.model().config().n_layers; ++layer)
      image_.drop_layer(layer);
    image_.drop_embedding_and_head();
    return result;
  }

  void matrix(const float* weight, std::span<const float> x, std::span<const float> dy,
              int64_t n_tokens) override {
    const auto found = by_values_.find(weight);
    if (found == by_values_.end()) return;
    TunedMatrix& m = matrices_[found->second];
    const int64_t rows = m.rows(), cols = m.cols(), group = m.group(), groups = m.groups();
    const Rotation* rotation = m.planned->rotation.get();
    pool_.parallel_for((rows + kPieceRows - 1) / kPieceRows, 1, [&](int64_t begin, int64_t end) {
      std::vector<float> gradient(static_cast<size_t>(kPieceRows * cols));
      std::vector<float> turned(static_cast<size_t>(cols));
      for (int64_t piece = begin; piece < end; ++piece) {
        const int64_t first = piece * kPieceRows, count = std::min(kPieceRows, rows - first);
        blas::gemm_at(count, cols, n_tokens, 1.0F, dy.data() + first, rows, x.data(), cols, 0.0F,
                      gradient.data(), cols);
        for (int64_t r = 0; r < count; ++r) {
          const float* g = gradient.data() + r * cols;
          if (rotation != nullptr) {
            rotation->forward(g, turned.data());
            g = turned.data();
          }
          for (size_t p = 0; p < m.codes.size(); ++p) {
            const int8_t* codes = m.codes[p].data() + (first + r) * cols;
            for (int64_t b = 0; b < groups; ++b) {
              const int64_t stop = std::min(cols, (b + 1) * group);
              float sum = 0;
              for (int64_t c = b * group; c < stop; ++c)
                sum += g[c] * static_cast<float>(codes[c]);
              m.scales[p].gradient[static_cast<size_t>((first + r) * groups + b)] +=
                  static_cast<double>(sum);
            }
          }
        }
      }
    });
  }

  void vector(const float* vector, std::span<const double> gradient) override {
    TunedVector* tuned = find_vector(vector, gradient.size());
    if (tuned == nullptr) return;
    for (size_t i = 0; i < gradient.size(); ++i)
      tuned->values.gradient[i] += gradient[i];
  }

 private:
  void read_matrices(std::span<FittedTensor> fitted) {
    for (int64_t layer = 0; layer < image_.model().config().n_layers; ++layer)
      image_.fill_layer(layer, pool_);
    for (size_t i = 0; i < plan_.tensors.size(); ++i) {
      const PlannedTensor& planned = plan_.tensors[i];
      if (!planned.fit || planned.role != TensorRole::kLinear || fitted[i].planes.empty()) continue;
      TunedMatrix m;
      m.planned = &planned;
      m.fitted = &fitted[i];
      m.effective = image_.matrix(planned.tensor.name).data();
      by_values_[m.effective] = matrices_.size();
      unpack(m);
      matrices_.push_back(std::move(m));
    }
    refresh();
  }

  void unpack(TunedMatrix& m) const {
    const Codec& codec = *m.planned->tensor.codec;
    const auto cols = static_cast<size_t>(m.cols());
    const auto groups = static_cast<size_t>(m.groups());
    const auto group = static_cast<size_t>(m.group());
    for (const auto& bytes : m.fitted->planes) {
      std::vector<int8_t> codes(static_cast<size_t>(m.rows()) * cols);
      std::vector<float> scales(static_cast<size_t>(m.rows()) * groups);
      pool_.parallel_for(m.rows(), 16, [&](int64_t begin, int64_t end) {
        std::vector<float> row(cols);
        for (auto r = static_cast<size_t>(begin); r < static_cast<size_t>(end); ++r) {
          codec.decode(bytes.data() + r * codec.row_bytes(cols), row.data(), cols);
          for (size_t c = 0; c < cols; ++c) {
            float& scale = scales[r * groups + c / group];
            scale = std::max(scale, std::fabs(row[c]));
            codes[r * cols + c] = static_cast<int8_t>(row[c] > 0 ? 1 : row[c] < 0 ? -1 : 0);
          }
        }
      });
      m.codes.push_back(std::move(codes));
      m.scales.emplace_back(std::move(scales));
    }
  }

  void read_vectors() {
    for (const PlannedTensor& t : plan_.tensors) {
      if (t.role != TensorRole::kOther || t.tensor.rows->n_rows() != 1) continue;
      const std::string& name = t.tensor.name;
      if (name.find("norm") == std::string::npos && !name.ends_with(".bias")) continue;
      TunedVector v;
      v.planned = &t;
      v.now.resize(static_cast<size_t>(t.tensor.rows->n_cols()));
      t.tensor.rows->read_row(0, v.now);
      v.values = Parameters(v.now);
      vectors_.push_back(std::move(v));
    }
    for (TunedVector& v : vectors_) {
      if (v.planned->tensor.name == "output_norm.weight") output_norm_ = &v;
    }
    if (output_norm_ == nullptr) throw InternalError("a model without output_norm.weight");
    original_output_norm_ = output_norm_->now;
    if (std::any_of(vectors_.begin(), vectors_.end(),
                    [](const TunedVector& v) { return v.planned->tensor.name == "output.bias"; }))
      throw Unsupported("tuning has no gradient for output.bias; use method gptq");
  }

  /// The model holds copies of its vectors. Two with the same values cannot be told apart, and are
  /// not tuned.
  TunedVector* find_vector(const float* vector, size_t size) {
    if (const auto known = by_vector_.find(vector); known != by_vector_.end()) return known->second;
    TunedVector* found = nullptr;
    for (TunedVector& v : vectors_) {
      if (&v == output_norm_ ||
          !std::equal(v.values.start.begin(), v.values.start.end(), vector, vector + size))
        continue;
      if (found != nullptr) {
        found = nullptr;
        break;
      }
      found = &v;
    }
    by_vector_[vector] = found;
    if (found != nullptr) image_.tape().replace_vector(vector, found->now.data());
    return found;
  }

  void read_output_matrix() {
    const PlannedTensor* head = nullptr;
    for (const PlannedTensor& t : plan_.tensors) {
      if (t.role == TensorRole::kHead || (t.role == TensorRole::kEmbedding && head == nullptr))
        head = &t;
    }
    if (head == nullptr) throw InternalError("a model without an output matrix");
    const RowSource& rows = *head->tensor.rows;
    const auto cols = static_cast<size_t>(rows.n_cols());
    output_matrix_.resize(static_cast<size_t>(rows.n_rows()) * cols);
    pool_.parallel_for(rows.n_rows(), 1, [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r)
        rows.read_row(r, std::span(output_matrix_).subspan(static_cast<size_t>(r) * cols, cols));
    });
  }

  /// The matrices of the image and the vectors take the present values.
  void refresh() {
    for (TunedMatrix& m : matrices_) {
      const auto cols = static_cast<size_t>(m.cols()), groups = static_cast<size_t>(m.groups());
      const auto group = static_cast<size_t>(m.group());
      const Rotation* rotation = m.planned->rotation.get();
      pool_.parallel_for(m.rows(), 16, [&](int64_t begin, int64_t end) {
        std::vector<float> row(cols);
        for (auto r = static_cast<size_t>(begin); r < static_cast<size_t>(end); ++r) {
          std::fill(row.begin(), row.end(), 0.0F);
          for (size_t p = 0; p < m.codes.size(); ++p) {
            for (size_t c = 0; c < cols; ++c)
              row[c] += m.scales[p].value(r * groups + c / group) *
                        static_cast<float>(m.codes[p][r * cols + c]);
          }
          float* out = m.effective + r * cols;
          if (rotation != nullptr)
            unrotate_row(*rotation, row.data(), out);
          else
            std::copy(row.begin(), row.end(), out);
        }
      });
    }
    for (TunedVector& v : vectors_) {
      for (size_t i = 0; i < v.now.size(); ++i)
        v.now[i] = v.values.value(i);
    }
  }

  template <class Do>
  void for_all(const Do& apply) {
    for (TunedMatrix& m : matrices_) {
      for (Parameters& p : m.scales)
        apply(p);
    }
    for (TunedVector& v : vectors_)
      apply(v.values);
  }

  static std::vector<size_t> shuffled(size_t n) {
    std::vector<size_t> order(n);
    std::iota(order.begin(), order.end(), size_t{0});
    std::mt19937_64 random(1);
    for (size_t i = n; i > 1; --i)
      std::swap(order[i - 1], order[random() % i]);
    return order;
  }

  /// Hidden states after the last layer.
  void forward(std::span<const int32_t> ids, std::span<float> out) {
    if (progress_.cancel != nullptr) progress_.cancel->check();
    ForwardRequest request;
    request.ids = ids;
    request.hidden_out = out;
    state_.truncate(0);
    image_.model().forward(request, state_, workspace_);
  }

  std::vector<float> normed(std::span<const float> hidden, std::span<const float> gains) const {
    std::vector<float> out(hidden.size());
    const auto d = static_cast<size_t>(d_model_);
    for (size_t at = 0; at < hidden.size(); at += d) {
      double squares = 0;
      for (size_t i = 0; i < d; ++i)
        squares += static_cast<double>(hidden[at + i]) * hidden[at + i];
      const double factor =
          1 / std::sqrt(squares / static_cast<double>(d) + static_cast<double>(eps_));
      for (size_t i = 0; i < d; ++i)
        out[at + i] = static_cast<float>(hidden[at + i] * factor) * gains[i];
    }
    return out;
  }

  void learn(size_t sequence) {
    const auto& ids = texts_.calibration.sequences[sequence];
    const std::vector<float>& original = originals_[sequence];
    std::vector<float> hidden(original.size()), gradient(original.size()), back(original.size());
    image_.tape().begin_recording();
    forward(ids, hidden);
    distillation_loss(output_matrix_, normed(original, original_output_norm_),
                      normed(hidden, output_norm_->now), d_model_, gradient, pool_);
    rms_norm_gradient(hidden, output_norm_->now, eps_, gradient, back,
                      output_norm_->values.gradient);
    image_.tape().backward(workspace_.x.slice_rows(0, static_cast<int64_t>(ids.size())), back,
                           *this);
    image_.tape().end_recording();
  }

  double holdout_divergence() {
    double sum = 0;
    int64_t count = 0;
    for (size_t i = 0; i < std::min(kMostHoldout, holdout_originals_.size()); ++i) {
      // Spread over the texts.
      const size_t s =
          i * holdout_originals_.size() / std::min(kMostHoldout, holdout_originals_.size());
      const auto& original = holdout_originals_[s];
      std::vector<float> hidden(original.size());
      forward(texts_.holdout.sequences[s], hidden);
      sum += distillation_loss(output_matrix_, normed(original, original_output_norm_),
                               normed(hidden, output_norm_->now), d_model_, {}, pool_);
      count += static_cast<int64_t>(original.size()) / d_model_;
    }
    return count == 0 ? 0 : sum / static_cast<double>(count);
  }

  void pack() {
    for (TunedMatrix& m : matrices_) {
      const Codec& codec = *m.planned->tensor.codec;
      const auto cols = static_cast<size_t>(m.cols()), groups = static_cast<size_t>(m.groups());
      for (size_t p = 0; p < m.codes.size(); ++p) {
        pool_.parallel_for(m.rows(), 16, [&](int64_t begin, int64_t end) {
          std::vector<uint16_t> scales(groups);
          for (auto r = static_cast<size_t>(begin); r < static_cast<size_t>(end); ++r) {
            for (size_t g = 0; g < groups; ++g)
              scales[g] = float_to_half(m.scales[p].value(r * groups + g));
            codec.pack(m.codes[p].data() + r * cols, scales.data(),
                       m.fitted->planes[p].data() + r * codec.row_bytes(cols), cols);
          }
        });
      }
    }
  }

  const QuantizePlan& plan_;
  ModelImage& image_;
  const CalibrationTexts& texts_;
  const HiddenStates& originals_;
  const HiddenStates& holdout_originals_;
  TuneOptions options_;
  ThreadPool& pool_;
  const Progress& progress_;
  int64_t d_model_;
  float eps_;
  State state_;
  Workspace workspace_;
  std::vector<TunedMatrix> matrices_;
  std::unordered_map<const float*, size_t> by_values_;
  std::vector<TunedVector> vectors_;
  std::unordered_map<const float*, TunedVector*> by_vector_;
  TunedVector* output_norm_ = nullptr;
  std::vector<float> original_output_norm_, output_matrix_;
};

}  // namespace

void check_tunable(const ModelConfig& config, const CalibrationTexts& texts) {
  const char* missing = config.recurrent.n_v_heads > 0 ? "recurrent layers"
                        : config.attention_output_gate ? "gated attention"
                        : config.logit_softcap > 0     ? "capped logits"
                                                       : nullptr;
  if (missing != nullptr)
    throw Unsupported(fmt::format("architecture {}: tuning has no gradient for {}; use method gptq",
                                  config.architecture, missing));
  if (texts.calibration.sequences.empty() || texts.holdout.sequences.empty())
    throw InvalidArgument(
        "method tuned needs texts to learn from and others to measure on: give more text with "
        "--calib, or --holdout FILE");
}

TuneResult tune_model(const QuantizePlan& plan, ModelImage& image, std::span<FittedTensor> fitted,
                      const CalibrationTexts& texts, const HiddenStates& originals,
                      const HiddenStates& holdout_originals, const TuneOptions& options,
                      ThreadPool& pool, const Progress& progress) {
  check_tunable(image.model().config(), texts);
  return Tuner(plan, image, fitted, texts, originals, holdout_originals, options, pool, progress)
      .run();
}

}  // namespace ts
