#include "quantize/compare_weights.h"

#include <algorithm>
#include <cmath>
#include <map>

#include <fmt/format.h>

#include <tensorsharp/error.hpp>

#include "base/quote_text.h"
#include "convert/model_source.h"
#include "quantize/ordinary_basis.h"

namespace ts {
namespace {

constexpr double kMostDecibels = 300;

struct RowSums {
  double difference = 0, reference = 0, cosine = 1;
};

RowSums compare_row(std::span<const float> values, std::span<const float> reference) {
  RowSums sums;
  double dot = 0, own = 0;
  for (size_t c = 0; c < values.size(); ++c) {
    const auto v = static_cast<double>(values[c]), r = static_cast<double>(reference[c]);
    sums.difference += (v - r) * (v - r);
    sums.reference += r * r;
    dot += v * r;
    own += v * v;
  }
  if (sums.reference > 0) sums.cosine = own > 0 ? dot / std::sqrt(own * sums.reference) : 0;
  return sums;
}

WeightError compare_tensor(const OutputTensor& tensor, const OutputTensor& reference,
                           ThreadPool& pool) {
  const int64_t n_rows = tensor.rows->n_rows();
  const auto n_cols = static_cast<size_t>(tensor.rows->n_cols());
  std::vector<RowSums> rows(static_cast<size_t>(n_rows));
  pool.parallel_for(n_rows, 1, [&](int64_t begin, int64_t end) {
    std::vector<float> a(n_cols), b(n_cols);
    for (int64_t r = begin; r < end; ++r) {
      tensor.rows->read_row(r, a);
      reference.rows->read_row(r, b);
      rows[static_cast<size_t>(r)] = compare_row(a, b);
    }
  });
  tensor.rows->release();
  reference.rows->release();
  WeightError error;
  error.name = tensor.name;
  double difference = 0, energy = 0;
  for (const RowSums& row : rows) {
    difference += row.difference;
    energy += row.reference;
    error.min_row_cosine = std::min(error.min_row_cosine, row.cosine);
  }
  error.relative_error = energy > 0 ? std::sqrt(difference / energy) : std::sqrt(difference);
  error.sqnr_db = error.relative_error > 0
                      ? std::min(-20 * std::log10(error.relative_error), kMostDecibels)
                      : kMostDecibels;
  return error;
}

}  // namespace

std::vector<WeightError> compare_weights(const std::filesystem::path& model,
                                         const std::filesystem::path& reference, ThreadPool& pool,
                                         const Progress& progress) {
  ModelSource a = open_model_source(model, "", progress);
  ModelSource b = open_model_source(reference, "", progress);
  if (a.architecture != b.architecture)
    throw FormatError(fmt::format("{}: architecture {}, expected {} as of {}", model.string(),
                                  quote_text(a.architecture), quote_text(b.architecture),
                                  reference.string()));
  to_ordinary_basis(a, progress);
  to_ordinary_basis(b, progress);
  std::map<std::string, const OutputTensor*> by_name;
  for (const OutputTensor& tensor : b.tensors)
    by_name[tensor.name] = &tensor;
  std::vector<WeightError> errors;
  for (const OutputTensor& tensor : a.tensors) {
    progress(tensor.name, errors.size(), a.tensors.size());
    const auto found = by_name.find(tensor.name);
    if (found == by_name.end())
      throw FormatError(fmt::format("{}: tensor {} is not part of {}", model.string(),
                                    quote_text(tensor.name), reference.string()));
    if (!(found->second->shape == tensor.shape))
      throw FormatError(fmt::format("{}: tensor {} has shape {}, expected {} as in {}",
                                    model.string(), quote_text(tensor.name),
                                    tensor.shape.to_string(), found->second->shape.to_string(),
                                    reference.string()));
    errors.push_back(compare_tensor(tensor, *found->second, pool));
    by_name.erase(found);
  }
  if (!by_name.empty())
    throw FormatError(fmt::format("{}: tensor {} of {} is missing", model.string(),
                                  quote_text(by_name.begin()->first), reference.string()));
  return errors;
}

}  // namespace ts
