#include "quantize/quantize.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <map>
#include <utility>

#include <fmt/format.h>

#include <tensorsharp/error.hpp>

#include "base/cpu_topology.h"
#include "base/mapped_file.h"
#include "base/sha256.h"
#include "format/file_kind.h"
#include "model/model.h"
#include "quantize/budget.h"
#include "quantize/layer_calibration.h"
#include "quantize/model_image.h"
#include "quantize/output_files.h"
#include "quantize/plan.h"
#include "quantize/saved_layers.h"
#include "quantize/tensor_fit.h"
#include "quantize/tuning.h"
#include "quantize/unrotated_rows.h"

namespace ts {
namespace {

using Clock = std::chrono::steady_clock;

/// The header of the file to be made must describe a model that can be run: names, shapes,
/// settings and rotations are checked before hours are spent on its weights.
void check_loads(const QuantizePlan& plan, const std::string& name) {
  std::vector<GgufOutputTensor> tensors;
  for (const PlannedTensor& t : plan.tensors)
    tensors.push_back(checked_gguf_tensor(name, t.tensor.name, t.tensor.codec->id, t.tensor.shape));
  const GgufOutputLayout layout = lay_out_gguf(name, plan.metadata, tensors, plan.alignment);
  const auto bytes = MappedFile::in_memory(name, layout.file_bytes());
  std::copy(layout.header.begin(), layout.header.end(),
            reinterpret_cast<char*>(bytes->writable_bytes().data()));
  (void)load_model(GgufFile::open(bytes), nullptr);
}

/// Name under which a file is written that is to be measured first.
std::filesystem::path unchecked_path(const std::filesystem::path& output) {
  std::filesystem::path path = output;
  path.replace_extension(".unchecked.gguf");
  return path;
}

/// What was said about the provisional file, about the one that was asked for.
std::string with_final_name(std::string text, const std::filesystem::path& provisional,
                            const std::filesystem::path& output) {
  const std::string stem = (provisional.parent_path() / provisional.stem()).string();
  const std::string final_stem = (output.parent_path() / output.stem()).string();
  for (size_t at = text.find(stem); at != std::string::npos; at = text.find(stem, at + 1))
    text.replace(at, stem.size(), final_stem);
  return text;
}

/// Removes files unless told not to.
class Provisional {
 public:
  explicit Provisional(const std::filesystem::path& path) : path_(path) {}
  Provisional(const Provisional&) = delete;
  Provisional& operator=(const Provisional&) = delete;
  ~Provisional() {
    std::error_code ec;
    if (path_.empty()) return;
    std::filesystem::remove(path_, ec);
    std::filesystem::remove(residual_path(path_), ec);
  }
  /// Gives the files their final names.
  void keep_as(const std::filesystem::path& output) {
    std::filesystem::rename(path_, output);
    std::error_code ec;
    const std::filesystem::path planes = residual_path(path_), stale = residual_path(output);
    if (std::filesystem::exists(planes, ec))
      std::filesystem::rename(planes, stale);
    else
      std::filesystem::remove(stale, ec);
    path_.clear();
  }

 private:
  std::filesystem::path path_;
};

/// Everything the fitted layers depend on.
std::string identity_of(const QuantizePlan& plan, const CalibrationTexts& texts,
                        const QuantizeOptions& options) {
  std::string text =
      fmt::format("1|{}|{}|{}|{}", texts.sha256, options.damping, options.correction, options.seed);
  std::vector<float> row;
  for (const PlannedTensor& t : plan.tensors) {
    text += fmt::format("|{} {} {} {}", t.tensor.name, t.tensor.codec->name, t.tensor.source_type,
                        t.rotation ? t.rotation->block() : 0);
    if (t.fit)
      text += fmt::format(" {} {} {} {} {} {} {}", static_cast<int>(t.options.method),
                          t.options.threshold.value_or(-1), t.options.search_threshold,
                          t.options.n_planes, static_cast<int>(t.options.plane_fit),
                          t.options.sparsity.min_nonzero, t.options.sparsity.max_nonzero);
    // Two rows tell the weights of two models apart.
    row.resize(static_cast<size_t>(t.tensor.rows->n_cols()));
    for (const int64_t r : {int64_t{0}, t.tensor.rows->n_rows() - 1}) {
      t.tensor.rows->read_row(r, row);
      text.append(reinterpret_cast<const char*>(row.data()), row.size() * sizeof(float));
    }
    t.tensor.rows->release();
  }
  return sha256_hex(std::as_bytes(std::span(text)));
}

/// One run over a plan.
class Quantizer {
 public:
  Quantizer(const QuantizePlan& plan, std::string input, const std::filesystem::path& output,
            const CalibrationTexts& texts, const QuantizeOptions& options, const Progress& progress)
      : plan_(plan),
        input_(std::move(input)),
        texts_(texts),
        options_(options),
        progress_(progress),
        n_threads_(options.n_threads > 0 ? options.n_threads : default_threads().n_threads),
        pool_(n_threads_),
        fitted_(plan.tensors.size()) {
    for (const PlannedTensor& t : plan_.tensors)
      total_ += static_cast<uint64_t>(t.tensor.shape.n_elems());
    if (texts.calibration.sequences.empty() && texts.holdout.sequences.empty()) return;
    saved_.emplace(output, options.resume ? identity_of(plan, texts, options) : "");
    image_.emplace(plan, n_threads_, options.isa);
    if (options.tune) check_tunable(image_->model().config(), texts);
    if ((options.correction > 0 || options.tune) && !texts.calibration.sequences.empty())
      original_.emplace(plan, n_threads_, options.isa);
    layers_.emplace(*image_, original_ ? &*original_ : nullptr, texts,
                    LayerCalibration::Options{options.damping, options.correction, options.tune},
                    pool_, progress);
  }

  /// Writes the files at `path`, which is not necessarily where they will stay.
  void write(const std::filesystem::path& path, bool overwrite, QuantizeReport& report) {
    OutputFiles files(plan_, path, overwrite);
    if (layers_) layers_->begin();
    if (options_.tune) {
      int64_t layer = -1;
      for (size_t i = 0; i < plan_.tensors.size(); ++i) {
        if (plan_.tensors[i].layer == layer) continue;
        layer = plan_.tensors[i].layer;
        compute_layer(i, report);
      }
      tune(report);
    }
    int64_t layer = -1;
    for (size_t i = 0; i < plan_.tensors.size(); ++i) {
      const PlannedTensor& t = plan_.tensors[i];
      if (t.layer != layer) {
        layer = t.layer;
        if (!options_.tune) compute_layer(i, report);
      }
      progress_(t.tensor.name, done_, total_);
      if (t.fit)
        write_fitted(files, i, report.tensors[i]);
      else
        write_plain(files, t);
      done_ += static_cast<uint64_t>(t.tensor.shape.n_elems());
    }
    progress_("syncing to disk", done_, total_);
    report.output_bytes = files.finish();
    report.residual_output = files.residual();
  }

  void measure(const std::filesystem::path& path, QuantizeReport& report) {
    if (!layers_ || texts_.holdout.sequences.empty()) return;
    image_->fill_head(pool_);
    const auto d = static_cast<size_t>(image_->model().config().d_model);
    const SourceLogits source = [&](size_t i, int64_t first, int64_t count, std::span<float> out) {
      layers_->logits(std::span(layers_->holdout()[i])
                          .subspan(static_cast<size_t>(first) * d, static_cast<size_t>(count) * d),
                      count, out);
    };
    report.quality =
        measure_quality(path, texts_.holdout, source, n_threads_, options_.isa, progress_);
    report.useless = !(report.quality[0].ratio() <= kUselessRatio);
  }

  /// What was kept for resuming is not needed any more.
  void finish() {
    if (saved_ && options_.resume) saved_->remove();
  }

 private:
  /// Fits the matrices of the layer whose first tensor is number `first`.
  void compute_layer(size_t first, QuantizeReport& report) {
    const int64_t layer = plan_.tensors[first].layer;
    if (!layers_ || layer < 0 || layer >= image_->model().config().n_layers) return;
    std::vector<LayerCalibration::Job> jobs;
    for (size_t i = first; i < plan_.tensors.size() && plan_.tensors[i].layer == layer; ++i) {
      if (plan_.tensors[i].fit) jobs.push_back({&plan_.tensors[i], &fitted_[i]});
    }
    progress_(fmt::format("layer {}", layer), done_, total_);
    layers_->begin_layer(layer);
    if (options_.resume && saved_->load(layer, jobs)) {
      for (const auto& job : jobs)
        layers_->use(*job.planned, *job.result);
    } else {
      layers_->fit_layer(layer, input_, jobs);
      if (options_.resume) saved_->save(layer, jobs);
    }
    report.layer_cosines.push_back(layers_->end_layer(layer));
    report.attention_correlations.push_back(layers_->attention_correlation());
  }

  void tune(QuantizeReport& report) {
    TuneOptions options;
    options.steps = options_.tune_steps;
    options.rate = options_.tune_rate;
    TuneResult result = tune_model(plan_, *image_, fitted_, texts_, layers_->originals(),
                                   layers_->holdout(), options, pool_, progress_);
    report.tune_kl_before = result.kl_before;
    report.tune_kl_after = result.kl_after;
    report.tune_steps_kept = result.steps_kept;
    tuned_ = std::move(result.vectors);
  }

  void write_fitted(OutputFiles& files, size_t index, QuantizedTensor& record) {
    const PlannedTensor& t = plan_.tensors[index];
    FittedTensor& fitted = fitted_[index];
    if (fitted.planes.empty()) fitted = fit_tensor(t, input_, nullptr, pool_, progress_.cancel, {});
    record.sqnr_db = fitted.sqnr_db;
    record.zero_rate = fitted.zero_rate;
    record.entropy_bits = fitted.entropy_bits;
    record.kurtosis = fitted.kurtosis;
    record.kurtosis_source = fitted.kurtosis_source;
    record.output_error = fitted.output_error;
    record.profile = weight_profile(t, pool_);
    files.base().write(fitted.planes[0]);
    for (size_t plane = 1; plane < fitted.planes.size(); ++plane)
      files.write_plane(fitted.planes[plane]);
    fitted = {};
  }

  /// Values that are copied, or encoded each on its own.
  void write_plain(OutputFiles& files, const PlannedTensor& t) {
    OutputTensor tensor = t.tensor;
    if (t.rotation) {
      tensor.rows = rotated_rows(std::move(tensor.rows), t.rotation);
      tensor.packed = {};
    }
    if (const auto tuned = tuned_.find(tensor.name); tuned != tuned_.end()) {
      tensor.rows = value_rows(tuned->second);
      tensor.packed = {};
    }
    const Progress quiet{nullptr, progress_.cancel};
    uint64_t bytes = 0;
    const bool exact = t.keeps_source() || t.tensor.codec->is_ternary();
    write_tensor(files.base(), tensor, !exact, input_, quiet, bytes, 0);
  }

  const QuantizePlan& plan_;
  std::string input_;
  const CalibrationTexts& texts_;
  const QuantizeOptions& options_;
  const Progress& progress_;
  int n_threads_;
  ThreadPool pool_;
  std::vector<FittedTensor> fitted_;  ///< by tensor; filled layer by layer
  std::optional<SavedLayers> saved_;
  std::optional<ModelImage> image_, original_;
  std::optional<LayerCalibration> layers_;
  std::map<std::string, std::vector<float>> tuned_;  ///< norms and biases
  uint64_t done_ = 0, total_ = 0;
};

QuantizeReport report_of(const QuantizePlan& plan, const QuantizeOptions& options) {
  QuantizeReport report;
  report.scheme = plan.main->name;
  report.method = options.tune ? "tuned" : ternary_method_name(plan.method);
  report.seed = options.seed;
  report.dry_run = options.dry_run;
  report.notes = plan.notes;
  report.absorbed_block = plan.absorbed.stream_block;
  report.absorbed_value_block = plan.absorbed.value_block;
  if (!plan.rotations.empty()) {
    report.rotation_block = plan.rotations.block();
    report.n_rotated = plan.rotations.declaration().inputs.size();
  }
  for (const PlannedTensor& t : plan.tensors) {
    QuantizedTensor record;
    record.name = t.tensor.name;
    record.source_type = t.tensor.source_type;
    record.type = t.tensor.codec->name;
    record.n_cols = t.tensor.shape[0];
    record.n_rows = t.tensor.shape.n_rows();
    record.n_planes = t.n_planes();
    record.bytes = tensor_bytes(*t.tensor.codec, t.tensor.shape).value_or(0) *
                   static_cast<uint64_t>(t.n_planes());
    record.fitted = t.fit;
    record.linear = t.role == TensorRole::kLinear;
    record.rotated = t.rotation != nullptr;
    record.absorbed = t.absorbed;
    if (t.rotation)
      record.rotation_additions =
          t.rotation->width() * std::countr_zero(static_cast<uint64_t>(t.rotation->block()));
    record.remark = t.remark;
    report.tensors.push_back(std::move(record));
  }
  report.account = account_of(plan, residual_metadata(plan));
  report.bits_per_weight = report.account.bits_per_weight();
  report.linear_bits_per_weight = report.account.linear_bits_per_weight();
  report.output_bytes = report.account.file_bytes;
  return report;
}

void check_request(const std::filesystem::path& output, const QuantizeOptions& options) {
  if (options.dry_run) return;
  std::error_code ec;
  if (output.extension() != ".gguf")
    throw InvalidArgument(fmt::format(
        "{}: only .gguf files can be written; give a name that ends in .gguf", output.string()));
  if (std::filesystem::exists(output, ec) && !options.overwrite)
    throw InvalidArgument(
        fmt::format("{}: exists already; use --force to overwrite it", output.string()));
}

int64_t vocabulary_size(const QuantizePlan& plan) {
  for (const PlannedTensor& t : plan.tensors) {
    if (t.role == TensorRole::kEmbedding) return t.tensor.shape.n_rows();
  }
  return 0;
}

/// Texts enough to tell which matrices matter.
constexpr size_t kBudgetSequences = 8;

/// Gives planes to the matrices of the plan so that all tensors together have
/// `options.target_bits`.
void choose_planes(QuantizePlan& plan, const std::string& input, const CalibrationTexts& texts,
                   const QuantizeOptions& options, const Progress& progress) {
  const BitAccount least = account_of(plan, residual_metadata(plan));
  if (*options.target_bits < least.bits_per_weight())
    throw InvalidArgument(fmt::format(
        "--target-bpw {}: the least for this model, one plane everywhere, is {:.4f} bits "
        "per weight\na smaller type for the embedding needs a policy file",
        *options.target_bits, least.bits_per_weight()));
  CalibrationTexts some;
  for (size_t i = 0; i < std::min(kBudgetSequences, texts.calibration.sequences.size()); ++i) {
    some.calibration.sequences.push_back(texts.calibration.sequences[i]);
    some.calibration.domains.push_back(texts.calibration.domains[i]);
  }
  ThreadPool pool(options.n_threads > 0 ? options.n_threads : default_threads().n_threads);
  ModelImage image(plan, pool.n_threads(), options.isa);
  LayerCalibration layers(image, nullptr, some, {options.damping, 0}, pool, progress);
  layers.begin();
  std::vector<PlannedTensor*> tensors;
  std::vector<PlaneChoice> choices;
  uint64_t bytes = 0;  // of the planes that are chosen
  for (int64_t layer = 0; layer < image.model().config().n_layers; ++layer) {
    std::vector<const PlannedTensor*> matrices;
    for (PlannedTensor& t : plan.tensors) {
      if (t.layer != layer || !t.fit || t.planes_fixed || t.role != TensorRole::kLinear) continue;
      matrices.push_back(&t);
      tensors.push_back(&t);
    }
    layers.begin_layer(layer);
    auto harm = layers.measure_planes(layer, input, matrices);
    for (size_t m = 0; m < matrices.size(); ++m) {
      const OutputTensor& tensor = matrices[m]->tensor;
      const uint64_t plane_bytes = tensor_bytes(*tensor.codec, tensor.shape).value_or(0);
      choices.push_back({std::move(harm[m]), plane_bytes, 1});
      bytes += plane_bytes;
    }
    layers.drop_layer(layer);
  }
  const double room =
      (*options.target_bits - least.bits_per_weight()) * static_cast<double>(least.n_weights) / 8;
  spend_budget(choices, bytes + static_cast<uint64_t>(room));
  for (size_t i = 0; i < choices.size(); ++i)
    tensors[i]->options.n_planes = choices[i].n_planes;
}

void run(const QuantizePlan& plan, const std::string& input, const std::filesystem::path& output,
         const CalibrationTexts& texts, const QuantizeOptions& options, const Progress& progress,
         QuantizeReport& report) {
  Quantizer quantizer(plan, input, output, texts, options, progress);
  if (texts.holdout.sequences.empty()) {
    quantizer.write(output, options.overwrite, report);
    quantizer.finish();
    return;
  }
  check_sidecar(plan, output, options.overwrite);
  const std::filesystem::path unchecked = unchecked_path(output);
  Provisional files(unchecked);
  try {
    quantizer.write(unchecked, true, report);
    quantizer.measure(unchecked, report);
  } catch (const IoError& error) {
    throw IoError(with_final_name(error.what(), unchecked, output));
  } catch (const ResourceExhausted& error) {
    throw ResourceExhausted(with_final_name(error.what(), unchecked, output));
  }
  quantizer.finish();
  if (report.useless && !options.accept_quality) return;
  files.keep_as(output);
  if (!report.residual_output.empty()) report.residual_output = residual_path(output);
}

}  // namespace

QuantizeReport quantize_model(const std::filesystem::path& input,
                              const std::filesystem::path& output, const QuantizeOptions& options,
                              const Progress& progress) {
  const auto begin = Clock::now();
  check_request(output, options);
  if (options.tune && options.calibration.empty())
    throw InvalidArgument("method tuned needs texts to learn from: give --calib FILE");
  progress("read", 0, 0);
  ModelSource source = open_model_source(input, options.force_pre, progress);
  if (!options.dry_run) refuse_input_as_output(source, output);
  QuantizePlan plan = plan_quantization(source, input.string(), options, progress);
  check_loads(plan, output.empty() ? "output" : output.string());
  CalibrationTexts texts;
  const bool fits = std::any_of(plan.tensors.begin(), plan.tensors.end(),
                                [](const PlannedTensor& t) { return t.fit; });
  if (fits || !options.calibration.empty() || !options.holdout.empty())
    texts = read_calibration_texts(plan.metadata, options.calibration, options.holdout,
                                   options.calibration_tokens, vocabulary_size(plan), progress);
  if (options.target_bits) {
    if (options.dry_run || options.calibration.empty())
      throw InvalidArgument(
          "--target-bpw measures which matrices matter: it needs --calib FILE and no --dry-run");
    choose_planes(plan, input.string(), texts, options, progress);
  }
  if (plan.max_planes() > 1)
    plan.metadata.set(kPlanesKey, MetadataValue::u32(static_cast<uint32_t>(plan.max_planes())));
  QuantizeReport report = report_of(plan, options);
  report.notes.insert(report.notes.end(), texts.notes.begin(), texts.notes.end());
  report.architecture = source.architecture;
  report.output = output;
  if (!options.dry_run) run(plan, input.string(), output, texts, options, progress, report);
  report.seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  return report;
}

}  // namespace ts
