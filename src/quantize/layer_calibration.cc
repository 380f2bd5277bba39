#include "quantize/layer_calibration.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <optional>

#include <fmt/format.h>

#include <tensorsharp/error.hpp>

#include "quantize/input_correction.h"
#include "quantize/unrotated_rows.h"

namespace ts {
namespace {

/// Ends a pass that has shown what it was made for.
struct EndOfPass {};

/// The first token of a sequence often has activations hundreds of times larger than all others and
/// would drown them in the statistics.
constexpr int64_t kTokensLeftOut = 1;

/// Tokens with this many times the median energy count as if they had just that: a few with
/// enormous activations exist in many models, and not only at the beginning.
constexpr double kMostEnergy = 10;
/// A correction moves no row of weights by more than this part of its length. Where inputs have
/// lost a direction altogether, no weights can bring it back.
constexpr double kMostChange = 0.5;
/// Memory for results of a layer that several passes need, in each of the two streams.
constexpr size_t kMostMemoBytes = size_t{1} << 30;
/// Sequences of the holdout that hidden states are compared on.
constexpr size_t kComparedSequences = 4;

/// At most 1; rows [n_tokens, width].
std::vector<float> token_weights(const float* rows, int64_t n_tokens, int64_t width) {
  std::vector<double> energies(static_cast<size_t>(n_tokens));
  for (size_t t = 0; t < energies.size(); ++t) {
    const float* row = rows + t * static_cast<size_t>(width);
    for (int64_t c = 0; c < width; ++c)
      energies[t] += static_cast<double>(row[c]) * row[c];
  }
  std::vector<double> sorted = energies;
  const auto middle = sorted.begin() + static_cast<ptrdiff_t>(sorted.size() / 2);
  std::nth_element(sorted.begin(), middle, sorted.end());
  const double most = kMostEnergy * *middle;
  std::vector<float> weights(energies.size(), 1.0F);
  for (size_t t = 0; t < weights.size(); ++t) {
    if (energies[t] > most && most > 0) weights[t] = static_cast<float>(most / energies[t]);
  }
  return weights;
}

/// Shortens the changes of rows [n, width] that are longer than kMostChange allows.
void limit_change(std::span<const float> before, std::span<float> rows, size_t width) {
  for (size_t at = 0; at + width <= rows.size(); at += width) {
    double change = 0, length = 0;
    for (size_t c = at; c < at + width; ++c) {
      const double d = static_cast<double>(rows[c]) - static_cast<double>(before[c]);
      change += d * d;
      length += static_cast<double>(before[c]) * static_cast<double>(before[c]);
    }
    if (change <= kMostChange * kMostChange * length) continue;
    const auto part = static_cast<float>(kMostChange * std::sqrt(length / change));
    for (size_t c = at; c < at + width; ++c)
      rows[c] = before[c] + part * (rows[c] - before[c]);
  }
}

/// Of the pairs in which either is not 0 (shares of tokens that cannot be seen are 0 in both).
double correlation(const std::vector<float>& a, const std::vector<float>& b) {
  double n = 0, sum_a = 0, sum_b = 0, aa = 0, bb = 0, ab = 0;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    const auto x = static_cast<double>(a[i]), y = static_cast<double>(b[i]);
    if (x == 0 && y == 0) continue;
    n += 1, sum_a += x, sum_b += y, aa += x * x, bb += y * y, ab += x * y;
  }
  const double variance = (n * aa - sum_a * sum_a) * (n * bb - sum_b * sum_b);
  return variance > 0 ? (n * ab - sum_a * sum_b) / std::sqrt(variance)
                      : std::numeric_limits<double>::quiet_NaN();
}

double cosine(const float* a, const float* b, size_t n) {
  double ab = 0, aa = 0, bb = 0;
  for (size_t i = 0; i < n; ++i) {
    ab += static_cast<double>(a[i]) * b[i];
    aa += static_cast<double>(a[i]) * a[i];
    bb += static_cast<double>(b[i]) * b[i];
  }
  return aa > 0 && bb > 0 ? ab / std::sqrt(aa * bb) : 1;
}

}  // namespace

LayerCalibration::LayerCalibration(ModelImage& image, ModelImage* original,
                                   const CalibrationTexts& texts, const Options& options,
                                   ThreadPool& pool, const Progress& progress)
    : image_(image),
      original_((options.correction > 0 || options.follow_original) &&
                        !texts.calibration.sequences.empty()
                    ? original
                    : nullptr),
      texts_(texts),
      options_(options),
      pool_(pool),
      progress_(progress),
      d_model_(image.model().config().d_model),
      state_(image.backend(), image.model().state_layout(kSequenceTokens, KvType::kF32)),
      workspace_(image.backend(), image.model().workspace_layout(kSequenceTokens)) {}

void LayerCalibration::pass(ModelImage& image, int64_t layer, std::span<const int32_t> ids,
                            std::span<const float> in, std::span<float> out,
                            const LinearObserver* observer, PassMemo* memo) {
  if (progress_.cancel != nullptr) progress_.cancel->check();
  ForwardRequest request;
  request.ids = ids;
  request.first_layer = layer;
  request.end_layer = layer + 1;
  request.hidden_in = in;
  request.hidden_out = out;
  request.observer = observer;
  state_.truncate(0);
  // What a pass computes before the observer ends it was computed with weights that are final.
  image.backend().replay(memo, out.empty());
  const struct Ordinary {
    ReplayingBackend& backend;
    ~Ordinary() { backend.replay(nullptr, false); }
  } afterwards{image.backend()};
  image.model().forward(request, state_, workspace_);
}

PassMemo* LayerCalibration::memo_of(Memos& memos, size_t sequence) {
  size_t bytes = 0;
  for (const PassMemo& memo : memos)
    bytes += memo.bytes();
  PassMemo& own = memos[sequence];
  return bytes < kMostMemoBytes || own.n_results() > 0 ? &own : nullptr;
}

void LayerCalibration::begin() {
  image_.fill_embedding(texts_.calibration.sequences);
  image_.fill_embedding(texts_.holdout.sequences);
  const auto embed = [&](const TokenSequences& texts, Stream& stream) {
    for (const auto& ids : texts.sequences) {
      stream.emplace_back(ids.size() * static_cast<size_t>(d_model_));
      ForwardRequest request;
      request.ids = ids;
      request.end_layer = 0;
      request.hidden_out = stream.back();
      state_.truncate(0);
      image_.model().forward(request, state_, workspace_);
    }
  };
  embed(texts_.calibration, calibration_);
  embed(texts_.holdout, holdout_);
  holdout_quantized_.assign(
      holdout_.begin(),
      holdout_.begin() + static_cast<ptrdiff_t>(std::min(kComparedSequences, holdout_.size())));
  if (original_ != nullptr) calibration_original_ = calibration_;
  memos_ = Memos(calibration_.size());
  original_memos_ = Memos(calibration_original_.size());
  image_.drop_embedding_and_head();
}

void LayerCalibration::advance(ModelImage& image, int64_t layer, const TokenSequences& texts,
                               Stream& stream, Memos* memos) {
  for (size_t i = 0; i < stream.size(); ++i)
    pass(image, layer, texts.sequences[i], stream[i], stream[i], nullptr,
         memos != nullptr ? &(*memos)[i] : nullptr);
}

void LayerCalibration::begin_layer(int64_t layer) {
  image_.fill_layer(layer, pool_);
  if (original_ != nullptr) original_->fill_layer(layer, pool_);
  original_shares_.clear();
  if (!holdout_.empty()) {
    original().backend().watch_attention(&original_shares_);
    pass(original(), layer, texts_.holdout.sequences[0], holdout_[0], holdout_[0], nullptr);
    original().backend().watch_attention(nullptr);
  }
  for (size_t i = 1; i < holdout_.size(); ++i)
    pass(original(), layer, texts_.holdout.sequences[i], holdout_[i], holdout_[i], nullptr);
  for (Memos* memos : {&memos_, &original_memos_}) {
    for (PassMemo& memo : *memos)
      memo.clear();
  }
}

std::vector<std::vector<std::string>> LayerCalibration::groups_of(int64_t layer) {
  std::vector<std::vector<std::string>> groups;
  const LinearObserver observer = [&](std::span<const std::string_view> names, Mat) {
    auto& group = groups.emplace_back();
    for (const std::string_view name : names)
      group.push_back(std::string(name) + ".weight");
  };
  const bool calibrated = !calibration_.empty();
  const auto& ids = (calibrated ? texts_.calibration : texts_.holdout).sequences.at(0);
  const auto& in = calibrated ? calibration_.at(0) : holdout_quantized_.at(0);
  // One token is enough to see the order.
  pass(image_, layer, std::span(ids).first(1), std::span(in).first(static_cast<size_t>(d_model_)),
       {}, &observer);
  return groups;
}

LayerCalibration::Statistics LayerCalibration::collect(int64_t layer, const std::string& first_name,
                                                       int64_t width) {
  Statistics statistics{SecondMoment(width), std::nullopt};
  const bool correct = original_ != nullptr && options_.correction > 0;
  if (correct) statistics.cross.emplace(width);
  // Shows the rows entering the matrix to `see` and ends the pass there.
  const auto watch = [&](ModelImage& image, size_t i, const Stream& stream, Memos& memos,
                         const auto& see) {
    const LinearObserver observer = [&](std::span<const std::string_view> names, Mat rows) {
      if (std::string(names.front()) + ".weight" != first_name) return;
      if (rows.stride != rows.cols) throw InternalError("rows entering a matrix are not dense");
      const int64_t skipped = std::min(kTokensLeftOut, rows.rows - 1);
      see(rows.row(skipped), rows.rows - skipped);
      throw EndOfPass();
    };
    try {
      pass(image, layer, texts_.calibration.sequences[i], stream[i], {}, &observer,
           memo_of(memos, i));
    } catch (const EndOfPass&) {
    }
  };
  std::vector<float> original;
  for (size_t i = 0; i < calibration_.size(); ++i) {
    if (correct)
      watch(*original_, i, calibration_original_, original_memos_,
            [&](const float* rows, int64_t count) { original.assign(rows, rows + count * width); });
    watch(image_, i, calibration_, memos_, [&](const float* rows, int64_t count) {
      std::vector<float> weights = token_weights(rows, count, width);
      if (statistics.cross) {
        const std::vector<float> others = token_weights(original.data(), count, width);
        for (size_t t = 0; t < weights.size(); ++t)
          weights[t] = std::min(weights[t], others[t]);
        statistics.cross->add(original.data(), rows, count, weights.data(), pool_);
      }
      statistics.moment.add(rows, count, weights.data(), pool_);
    });
  }
  return statistics;
}

void LayerCalibration::fit_layer(int64_t layer, const std::string& input, std::vector<Job> jobs) {
  for (const auto& group : groups_of(layer)) {
    std::vector<Job> members;
    for (const std::string& name : group) {
      for (Job& job : jobs) {
        if (job.planned == nullptr || job.planned->tensor.name != name) continue;
        members.push_back(job);
        job.planned = nullptr;
      }
    }
    if (members.empty()) continue;
    std::optional<Statistics> statistics;
    if (!calibration_.empty())
      statistics = collect(layer, group.front(), members[0].planned->tensor.shape[0]);
    // One metric for each basis: matrices that read the same rows nearly always share it.
    std::map<const Rotation*, std::unique_ptr<LossMetric>> metrics;
    for (const Job& job : members) {
      const PlannedTensor& planned = *job.planned;
      progress_(planned.tensor.name, static_cast<uint64_t>(layer),
                static_cast<uint64_t>(image_.model().config().n_layers));
      const LossMetric* metric = nullptr;
      if (statistics) {
        auto& made = metrics[planned.rotation.get()];
        if (!made) {
          SecondMoment rotated = statistics->moment;
          if (planned.rotation) rotated.rotate(*planned.rotation, pool_);
          made = std::make_unique<LossMetric>(rotated, options_.damping, pool_, progress_.cancel);
        }
        metric = made.get();
      }
      const int64_t width = planned.tensor.shape[0];
      ChangeRows change;
      if (statistics && statistics->cross)
        change = [&](std::span<float> rows, int64_t n_rows) {
          const std::vector<float> before(rows.begin(), rows.end());
          // What factoring the statistics needed, this needs, too.
          const double damping = std::max(options_.damping, metric->damping());
          correct_for_input_error(rows, n_rows, *statistics->cross, statistics->moment,
                                  options_.correction, damping, pool_, progress_.cancel);
          limit_change(before, rows, static_cast<size_t>(width));
        };
      double loss = 0, energy = 0;
      std::vector<float> error;
      *job.result = fit_tensor(
          planned, input, metric, pool_, progress_.cancel,
          [&](int64_t first, int64_t count, std::span<const float> values) {
            // Until now the image holds the source's weights.
            const std::span<float> rows =
                image_.matrix(planned.tensor.name)
                    .subspan(static_cast<size_t>(first * width), values.size());
            if (statistics) {
              error.resize(values.size());
              for (size_t i = 0; i < values.size(); ++i)
                error[i] = values[i] - rows[i];
              loss += layer_loss(error, count, statistics->moment, pool_);
              energy += layer_loss(rows, count, statistics->moment, pool_);
            }
            std::copy(values.begin(), values.end(), rows.begin());
          },
          change);
      if (statistics && energy > 0) job.result->output_error = loss / energy;
    }
  }
  for (const Job& job : jobs) {
    if (job.planned != nullptr)
      throw InternalError(fmt::format("{}: no pass reads {}", input, job.planned->tensor.name));
  }
}

std::vector<std::vector<double>> LayerCalibration::measure_planes(
    int64_t layer, const std::string& input, std::span<const PlannedTensor* const> matrices) {
  std::vector<std::vector<double>> harm(matrices.size());
  for (const auto& group : groups_of(layer)) {
    std::optional<Statistics> statistics;
    for (size_t i = 0; i < matrices.size(); ++i) {
      const PlannedTensor& planned = *matrices[i];
      if (std::find(group.begin(), group.end(), planned.tensor.name) == group.end()) continue;
      progress_(fmt::format("measuring {}", planned.tensor.name), static_cast<uint64_t>(layer),
                static_cast<uint64_t>(image_.model().config().n_layers));
      const int64_t width = planned.tensor.shape[0];
      if (!statistics) statistics = collect(layer, group.front(), width);
      const std::span<const float> weights = image_.matrix(planned.tensor.name);
      const double energy =
          layer_loss(weights, planned.tensor.shape.n_rows(), statistics->moment, pool_);
      for (int planes = 1; planes <= kMaxPlanes; ++planes) {
        PlannedTensor plain = planned;
        plain.options = {};
        plain.options.group = planned.options.group;
        plain.options.n_planes = planes;
        double loss = 0;
        std::vector<float> error;
        fit_tensor(plain, input, nullptr, pool_, progress_.cancel,
                   [&](int64_t first, int64_t count, std::span<const float> values) {
                     const auto rows =
                         weights.subspan(static_cast<size_t>(first * width), values.size());
                     error.resize(values.size());
                     for (size_t k = 0; k < values.size(); ++k)
                       error[k] = values[k] - rows[k];
                     loss += layer_loss(error, count, statistics->moment, pool_);
                   });
        harm[i].push_back(energy > 0 ? loss / energy : 0);
      }
    }
  }
  // How much the layer changes what passes it.
  double change = 0, whole = 0;
  for (size_t s = 0; s < calibration_.size(); ++s) {
    const std::vector<float> before = calibration_[s];
    pass(image_, layer, texts_.calibration.sequences[s], before, calibration_[s], nullptr,
         &memos_[s]);
    for (size_t k = static_cast<size_t>(d_model_); k < before.size(); ++k) {
      const double after = static_cast<double>(calibration_[s][k]);
      const double moved = after - static_cast<double>(before[k]);
      change += moved * moved;
      whole += after * after;
    }
  }
  const double part = whole > 0 ? change / whole : 0;
  for (auto& values : harm) {
    for (size_t p = 0; p < values.size(); ++p) {
      values[p] *= part;
      if (p > 0) values[p] = std::min(values[p], values[p - 1]);
    }
  }
  return harm;
}

void LayerCalibration::use(const PlannedTensor& planned, const FittedTensor& fitted) {
  const Codec& codec = *planned.tensor.codec;
  const int64_t width = planned.tensor.shape[0];
  const auto cols = static_cast<size_t>(width);
  const size_t row_bytes = codec.row_bytes(cols);
  const std::span<float> matrix = image_.matrix(planned.tensor.name);
  pool_.parallel_for(planned.tensor.shape.n_rows(), 1, [&](int64_t begin, int64_t end) {
    std::vector<float> sum(cols), plane(cols);
    for (int64_t r = begin; r < end; ++r) {
      std::fill(sum.begin(), sum.end(), 0.0F);
      for (const auto& bytes : fitted.planes) {
        codec.decode(bytes.data() + static_cast<size_t>(r) * row_bytes, plane.data(), cols);
        for (size_t c = 0; c < cols; ++c)
          sum[c] += plane[c];
      }
      float* out = matrix.data() + static_cast<size_t>(r) * cols;
      if (planned.rotation)
        unrotate_row(*planned.rotation, sum.data(), out);
      else
        std::copy(sum.begin(), sum.end(), out);
    }
  });
}

double LayerCalibration::end_layer(int64_t layer) {
  advance(image_, layer, texts_.calibration, calibration_, &memos_);
  std::vector<float> shares;
  image_.backend().watch_attention(&shares);
  for (size_t i = 0; i < holdout_quantized_.size(); ++i) {
    pass(image_, layer, texts_.holdout.sequences[i], holdout_quantized_[i], holdout_quantized_[i],
         nullptr);
    if (i == 0) image_.backend().watch_attention(nullptr);
  }
  image_.backend().watch_attention(nullptr);
  attention_correlation_ = correlation(original_shares_, shares);
  image_.drop_layer(layer);
  if (original_ != nullptr) {
    advance(*original_, layer, texts_.calibration, calibration_original_, &original_memos_);
    original_->drop_layer(layer);
  }
  double sum = 0;
  int64_t count = 0;
  const auto d = static_cast<size_t>(d_model_);
  for (size_t s = 0; s < holdout_quantized_.size(); ++s) {
    for (size_t at = d; at + d <= holdout_[s].size(); at += d, ++count)
      sum += cosine(holdout_[s].data() + at, holdout_quantized_[s].data() + at, d);
  }
  return count == 0 ? 1 : sum / static_cast<double>(count);
}

void LayerCalibration::logits(std::span<const float> hidden, int64_t count, std::span<float> out) {
  const std::vector<int32_t> ids(static_cast<size_t>(count), 0);
  ForwardRequest request;
  request.ids = ids;
  request.first_layer = request.end_layer = image_.model().config().n_layers;
  request.hidden_in = hidden;
  request.logits = out;
  request.all_logits = true;
  state_.truncate(0);
  image_.model().forward(request, state_, workspace_);
}

}  // namespace ts
