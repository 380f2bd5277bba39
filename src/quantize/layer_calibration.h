/// Goes through a model layer by layer with the hidden states of all calibration texts in hand, so
/// that every matrix is fitted to the inputs it will really see: those that the matrices before it,
/// already quantized, produce.
///
/// With a second copy of the model, the original hidden states of the same texts go beside them,
/// and weights are first moved towards what brings the original outputs back from those inputs
/// (input_correction.h).
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/progress.h"
#include "base/thread_pool.h"
#include "model/state.h"
#include "model/workspace.h"
#include "quantize/calibration_text.h"
#include "quantize/model_image.h"
#include "quantize/tensor_fit.h"

namespace ts {

class LayerCalibration {
 public:
  struct Options {
    double damping = 0.1;          ///< see LossMetric
    double correction = 0.5;       ///< strength of correct_for_input_error(); 0 = none
    bool follow_original = false;  ///< keep the original hidden states without a correction, too
  };
  /// All must outlive this object. `original` is needed to follow the original, else null.
  LayerCalibration(ModelImage& image, ModelImage* original, const CalibrationTexts& texts,
                   const Options& options, ThreadPool& pool, const Progress& progress);

  /// Computes the embeddings of all texts.
  void begin();
  /// Loads the layer's weights and lets the original hidden states pass it.
  void begin_layer(int64_t layer);
  /// A matrix of the layer to fit: its plan, and where the result goes.
  struct Job {
    const PlannedTensor* planned = nullptr;
    FittedTensor* result = nullptr;
  };
  /// Fits the jobs, in the order in which a pass meets their matrices. Matrices that read the same
  /// rows share statistics and cannot see each other's errors. Without calibration texts, or where
  /// the method needs none, they are fitted to the weights alone.
  void fit_layer(int64_t layer, const std::string& input, std::vector<Job> jobs);
  /// For each of these matrices, what a plain fit of 1 ... kMaxPlanes planes does to the hidden
  /// states after the layer: error of its outputs / outputs, times change of the hidden states by
  /// the layer / hidden states, all as energies. Weights stay as they are, and the hidden states
  /// pass the layer. Between begin_layer() and end_layer().
  std::vector<std::vector<double>> measure_planes(int64_t layer, const std::string& input,
                                                  std::span<const PlannedTensor* const> matrices);
  /// Takes a matrix that was fitted before.
  void use(const PlannedTensor& planned, const FittedTensor& fitted);
  /// Lets the hidden states pass the quantized layer and frees its weights. Returns the mean cosine
  /// between original and quantized hidden states of the holdout (1 without one).
  double end_layer(int64_t layer);

  /// Correlation between the shares that tokens give to each other in the original and in the
  /// quantized layer that was ended last, on the first text of the holdout. NaN without a holdout
  /// or without attention.
  double attention_correlation() const noexcept { return attention_correlation_; }

  /// Frees the layer's weights without any pass; after measure_planes().
  void drop_layer(int64_t layer) { image_.drop_layer(layer); }

  /// Original hidden states of the holdout after the last layer done, [n_tokens, d_model] each.
  const std::vector<std::vector<float>>& holdout() const noexcept { return holdout_; }
  /// Those of the calibration texts, where the original is followed.
  const std::vector<std::vector<float>>& originals() const noexcept {
    return calibration_original_;
  }
  /// Computes logits [count, n_vocab] of rows of such states; the output matrix must be filled.
  void logits(std::span<const float> hidden, int64_t count, std::span<float> out);

 private:
  using Stream = std::vector<std::vector<float>>;
  using Memos = std::vector<PassMemo>;  ///< by sequence
  struct Statistics {
    SecondMoment moment;
    std::optional<CrossMoment> cross;
  };
  /// One pass of one sequence through `layer`. Without `out` it may be ended by the observer.
  void pass(ModelImage& image, int64_t layer, std::span<const int32_t> ids,
            std::span<const float> in, std::span<float> out, const LinearObserver* observer,
            PassMemo* memo = nullptr);
  void advance(ModelImage& image, int64_t layer, const TokenSequences& texts, Stream& stream,
               Memos* memos = nullptr);
  /// The memo of a sequence, or null where memory for it is not allowed.
  static PassMemo* memo_of(Memos& memos, size_t sequence);
  /// Groups of matrices that read the same rows, in the order of a pass.
  std::vector<std::vector<std::string>> groups_of(int64_t layer);
  Statistics collect(int64_t layer, const std::string& first_name, int64_t width);
  /// Where the source's weights are during a layer.
  ModelImage& original() noexcept { return original_ != nullptr ? *original_ : image_; }

  ModelImage& image_;
  ModelImage* original_;
  const CalibrationTexts& texts_;
  Options options_;
  ThreadPool& pool_;
  const Progress& progress_;
  int64_t d_model_;
  State state_;
  Workspace workspace_;
  Stream calibration_, calibration_original_, holdout_, holdout_quantized_;
  std::vector<float> original_shares_;  ///< of attention, on the first text of the holdout
  double attention_correlation_ = 0;
  Memos memos_, original_memos_;  ///< of the layer at work
};

}  // namespace ts
