/// Turns a model into a ternary one: opens a checkpoint or GGUF file, plans a type for every
/// tensor, rotates, fits and writes, one layer at a time. Description and examples:
/// docs/quantize.md.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/progress.h"
#include "quantize/bit_account.h"
#include "quantize/calibration_text.h"
#include "quantize/quality.h"
#include "quantize/ternary_options.h"
#include "quantize/weight_profile.h"

namespace ts {

struct QuantizeOptions {
  std::string scheme = "ptq1_0";  ///< codec of the layers' matrices
  /// "auto", "none", "absorbed" or a block size.
  std::string rotate = "auto";
  uint64_t seed = 0;             ///< of the signs
  bool search_rotation = false;  ///< try several seeds for each width
  /// Unset: kGptq with calibration texts, kMse without.
  std::optional<TernaryMethod> method;
  std::optional<double> threshold;
  bool search_threshold = false;
  int n_planes = 1;
  PlaneFit plane_fit = PlaneFit::kProgressive;
  Sparsity sparsity;
  std::string policy;  ///< name or file; empty = the default policy
  /// Bits per weight over all tensors that planes are added for, where they matter most, instead of
  /// n_planes everywhere. Needs calibration texts.
  std::optional<double> target_bits;
  bool no_fallback = false;
  /// The source is to be rotated or in planes, and may be ternary: ordinary weights are made of it.
  bool unrotate = false;
  std::string force_pre;  ///< as ConvertOptions::force_pre
  bool overwrite = false;
  bool dry_run = false;  ///< plan only; `output` may be empty

  std::vector<CalibrationFile> calibration;
  int64_t calibration_tokens = 65536;
  double damping = 0.1;     ///< see LossMetric
  double correction = 0.5;  ///< strength of the correction for the errors of earlier layers, 0 to 1
  /// Texts to measure the result on; without, the ends of the calibration texts.
  std::vector<std::filesystem::path> holdout;
  /// Afterwards, tune scales, norms and biases; needs calibration texts.
  bool tune = false;
  int tune_steps = 40;
  double tune_rate = 2e-2;      ///< see TuneOptions
  bool accept_quality = false;  ///< keep a result that is of no use
  /// Keep finished layers in OUT.partial, and go on from what is there.
  bool resume = false;
  int n_threads = 0;  ///< 0 = default_threads()
  std::string isa;    ///< of the forward passes; empty = automatic
};

/// What became of one tensor.
struct QuantizedTensor {
  std::string name;
  std::string source_type, type;  ///< codec names
  int64_t n_rows = 0, n_cols = 0;
  int n_planes = 1;
  uint64_t bytes = 0;  ///< all planes
  bool fitted = false, linear = false;
  bool rotated = false;            ///< its inputs are rotated at run time
  bool absorbed = false;           ///< its inputs come rotated, at no cost
  int64_t rotation_additions = 0;  ///< per token at run time; matrices with one input share them
  std::string remark;              ///< why it is not what was asked for; empty = it is
  // Of fitted tensors, once they are:
  double sqnr_db = 0;          ///< of all planes, in the basis that is stored
  double zero_rate = 0;        ///< of plane 0
  double entropy_bits = 0;     ///< of the codes of all planes together, per weight
  double kurtosis = 0;         ///< of the weights in the basis that is stored
  double kurtosis_source = 0;  ///< in the basis of the source
  double output_error = -1;    ///< see FittedTensor
  WeightProfile profile;
};

struct QuantizeReport {
  std::string architecture, scheme, method;
  int64_t rotation_block = 0;  ///< 0 = nothing is rotated
  size_t n_rotated = 0;
  int64_t absorbed_block = 0, absorbed_value_block = 0;  ///< see AbsorbedRotation
  uint64_t seed = 0;
  std::vector<QuantizedTensor> tensors;  ///< in file order
  BitAccount account;
  std::filesystem::path output, residual_output;  ///< the second is empty without further planes
  uint64_t output_bytes = 0;                      ///< of both files
  double bits_per_weight = 0, linear_bits_per_weight = 0;
  std::vector<Quality> quality;       ///< all texts together, then each; empty = not measured
  std::vector<double> layer_cosines;  ///< of hidden states on the holdout, after each layer
  /// Of the shares of attention on one text of the holdout, by layer; NaN without attention.
  std::vector<double> attention_correlations;
  /// Divergence from the source on the holdout before and after tuning, in nats; steps that were
  /// kept. Negative: not tuned.
  double tune_kl_before = -1, tune_kl_after = -1;
  int tune_steps_kept = 0;
  /// The result is of no use and was not kept (or only because of accept_quality).
  bool useless = false;
  double seconds = 0;
  uint64_t peak_rss_bytes = 0;  ///< of the process; set by who prints the report
  bool dry_run = false;
  std::vector<std::string> notes;  ///< remarks for people, one line each
};

/// Errors: InvalidArgument (options, existing output), FormatError (damaged input), Unsupported (an
/// architecture or type that cannot be quantized; with no_fallback, a width that does not fit),
/// ResourceExhausted, IoError, Cancelled. Output files appear complete or not at all.
QuantizeReport quantize_model(const std::filesystem::path& input,
                              const std::filesystem::path& output, const QuantizeOptions& options,
                              const Progress& progress);

}  // namespace ts
