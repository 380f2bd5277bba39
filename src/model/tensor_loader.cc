#include "model/tensor_loader.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include <tensorsharp/error.hpp>

#include "base/log.h"
#include "base/quote_text.h"
#include "codec/codec.h"

namespace ts {
namespace {

/// Tensors that hold nothing a forward pass needs: old converters stored the rotary frequencies,
/// which follow from the hyper-parameters, once per layer.
bool is_ignorable(std::string_view name) {
  return name.ends_with(".rotary_emb.inv_freq") || name.ends_with(".attn_rot_embd.weight") ||
         name.ends_with(".attn_rot_embd");
}

bool is_float_type(TypeId type) {
  return type == TypeId::kF32 || type == TypeId::kF16 || type == TypeId::kBF16;
}

}  // namespace

TensorLoader::TensorLoader(std::shared_ptr<const GgufFile> file, Backend* backend,
                           const Progress* progress,
                           std::shared_ptr<const HadamardContract> contract, VectorValues values,
                           std::shared_ptr<const GgufFile> residual)
    : file_(std::move(file)),
      backend_(backend),
      progress_(progress),
      contract_(std::move(contract)),
      values_(values),
      residual_(std::move(residual)) {}

const TensorEntry& TensorLoader::require(const std::string& name, int64_t ne0, int64_t ne1) {
  const TensorEntry* entry = file_->find(name);
  if (entry == nullptr)
    throw FormatError(
        fmt::format("{}: tensor {} is missing; the file is incomplete or its architecture key is "
                    "wrong",
                    source(), name));
  check(*file_, entry, name, ne0, ne1);
  if (declared_.insert(name).second) used_.push_back(name);
  return *entry;
}

const TensorEntry& TensorLoader::check(const GgufFile& file, const TensorEntry* entry,
                                       const std::string& name, int64_t ne0, int64_t ne1) {
  const std::string source = file.path().string();
  const Shape expected = ne1 == 1 ? Shape{ne0} : Shape{ne0, ne1};
  if (!(entry->shape == expected))
    throw FormatError(
        fmt::format("{}: tensor {} has shape {}, expected {} from the hyper-parameters", source,
                    name, entry->shape.to_string(), expected.to_string()));
  const Codec& codec = require_codec(entry->type, fmt::format("{}: tensor {}", source, name));
  const auto bytes = tensor_bytes(codec, entry->shape);
  if (!bytes)
    throw FormatError(
        fmt::format("{}: tensor {} of type {} has rows of {} values, expected a multiple of {}",
                    source, name, codec.name, ne0, codec.block_elems));
  if (entry->data.size() != *bytes)
    throw FormatError(fmt::format("{}: tensor {} has {} bytes of data, expected {}", source, name,
                                  entry->data.size(), *bytes));
  return *entry;
}

std::shared_ptr<const Weight> TensorLoader::matrix(const std::string& name, int64_t n_cols,
                                                   int64_t n_rows, WeightUse use) {
  const TensorEntry& entry = require(name, n_cols, n_rows);
  const Codec& codec = *find_codec(entry.type);
  if (codec.block_elems == 1 && !is_float_type(entry.type))
    throw Unsupported(
        fmt::format("{}: tensor {} has type {}, expected f32, f16, bf16 or a "
                    "quantized type",
                    source(), name, codec.name));
  return upload(entry, file_, use);
}

std::shared_ptr<const Weight> TensorLoader::upload(const TensorEntry& entry,
                                                   const std::shared_ptr<const GgufFile>& file,
                                                   WeightUse use) {
  matrix_bytes_ += entry.data.size();
  if (progress_ != nullptr)
    (*progress_)("loading weights", std::min(used_.size(), file_->tensors().size()),
                 file_->tensors().size());
  if (backend_ == nullptr) return nullptr;
  auto weight = backend_->upload(
      entry.view(), file, use, [file](std::span<const std::byte> bytes) { file->release(bytes); });
  weights_.push_back(weight.get());
  return weight;
}

void TensorLoader::add_planes(const std::string& name, Linear& linear) {
  if (residual_ == nullptr) return;
  const TensorEntry& base = *file_->find(name);
  for (int plane = 1;; ++plane) {
    const std::string plane_name = fmt::format("{}.plane{}", name, plane);
    const TensorEntry* entry = residual_->find(plane_name);
    if (entry == nullptr) return;
    check(*residual_, entry, plane_name, base.shape[0], base.shape[1]);
    if (find_codec(entry->type)->block_elems == 1)
      throw Unsupported(fmt::format("{}: tensor {} has type {}, expected a quantized type",
                                    residual_->path().string(), plane_name,
                                    type_name(entry->type)));
    used_planes_.insert(plane_name);
    linear.planes.push_back(upload(*entry, residual_, WeightUse::kMatrix));
  }
}

std::vector<float> TensorLoader::vector(const std::string& name, int64_t size) {
  return table(name, size, 1);
}

std::vector<float> TensorLoader::table(const std::string& name, int64_t n_cols, int64_t n_rows) {
  const TensorEntry& entry = require(name, n_cols, n_rows);
  const int64_t size = entry.shape.n_elems();
  if (!is_float_type(entry.type))
    throw Unsupported(fmt::format("{}: tensor {} has type {}, expected f32, f16 or bf16", source(),
                                  name, type_name(entry.type)));
  vector_bytes_ += static_cast<uint64_t>(size) * sizeof(float);
  if (values_ == VectorValues::kSkipped) return {};
  std::vector<float> values(static_cast<size_t>(size));
  find_codec(entry.type)->decode(entry.data.data(), values.data(), values.size());
  const auto bad =
      std::find_if(values.begin(), values.end(), [](float v) { return !std::isfinite(v); });
  if (bad != values.end())
    throw FormatError(fmt::format(
        "{}: tensor {} holds {} at index {}; the file is damaged, download or convert it again",
        source(), name, *bad, bad - values.begin()));
  return values;
}

std::vector<float> TensorLoader::optional_vector(const std::string& name, int64_t size) {
  return has(name) ? vector(name, size) : std::vector<float>{};
}

Linear TensorLoader::linear(const std::string& name, int64_t n_in, int64_t n_out, Bias bias) {
  Linear result;
  result.name = name;
  result.weight = matrix(name + ".weight", n_in, n_out);
  WeightRotations rotations = take_rotations(name + ".weight");
  result.input = std::move(rotations.input);
  result.output = std::move(rotations.output);
  add_planes(name + ".weight", result);
  if (bias == Bias::kRequired) result.bias = vector(name + ".bias", n_out);
  if (bias == Bias::kOptional) result.bias = optional_vector(name + ".bias", n_out);
  return result;
}

size_t TensorLoader::skip(std::string_view prefix) {
  size_t count = 0;
  for (const TensorEntry& entry : file_->tensors()) {
    if (entry.name.starts_with(prefix) && declared_.insert(entry.name).second) ++count;
  }
  return count;
}

Embedding TensorLoader::embedding(const std::string& name, int64_t d_model, int64_t n_vocab,
                                  WeightUse use) {
  Embedding result;
  result.name = name;
  result.table = matrix(name + ".weight", d_model, n_vocab, use);
  result.rotation = take_rotations(name + ".weight").rows;
  return result;
}

WeightRotations TensorLoader::take_rotations(const std::string& name) {
  if (!contract_) return {};
  WeightRotations rotations = contract_->rotations_of(name);
  for (const auto& rotation : {rotations.input, rotations.rows, rotations.output}) {
    if (rotation &&
        std::find(rotations_.begin(), rotations_.end(), rotation.get()) == rotations_.end())
      rotations_.push_back(rotation.get());
  }
  rotated_.insert(name);
  return rotations;
}

void TensorLoader::finish() const {
  if (contract_) {
    const std::unordered_set<std::string> used(used_.begin(), used_.end());
    for (const std::string& name : contract_->names()) {
      const bool skipped = declared_.contains(name) && !used.contains(name);
      if (rotated_.contains(name) || skipped) continue;
      throw Unsupported(
          fmt::format("{}: tensor {} is stored rotated, but architecture {} does not read it as a "
                      "matrix whose input can be rotated; a run would be wrong",
                      source(), quote_text(name),
                      file_->metadata().get_string("general.architecture").value_or("?")));
    }
    contract_->warn_of_unlisted(*file_, used);
  }
  if (residual_ != nullptr) {
    for (const TensorEntry& entry : residual_->tensors()) {
      if (used_planes_.contains(entry.name)) continue;
      throw Unsupported(fmt::format(
          "{}: tensor {} is no further plane of a matrix of this model; a run without it would be "
          "wrong (--no-residual runs the model without any)",
          residual_->path().string(), quote_text(entry.name)));
    }
  }
  for (const TensorEntry& entry : file_->tensors()) {
    if (declared_.contains(entry.name)) continue;
    if (is_ignorable(entry.name)) {
      log_debug(fmt::format("tensor {} is not needed and was skipped", entry.name));
      continue;
    }
    throw Unsupported(
        fmt::format("{}: tensor {} {} is not part of architecture {}; a run without it would be "
                    "wrong",
                    source(), quote_text(entry.name), entry.shape.to_string(),
                    file_->metadata().get_string("general.architecture").value_or("?")));
  }
}

}  // namespace ts
