#include "quantize/saved_layers.h"

#include <cstring>
#include <system_error>

#include <fmt/format.h>

#include <tensorsharp/error.hpp>

#include "format/gguf.h"

namespace ts {
namespace {

constexpr const char* kIdentity = "tensorsharp.partial.identity";

std::string statistics_key(const std::string& tensor) {
  return fmt::format("tensorsharp.partial.statistics.{}", tensor);
}

/// Doubles as hexadecimal text, which keeps every bit.
std::string statistics_text(const FittedTensor& t) {
  return fmt::format("{:a} {:a} {:a} {:a} {:a} {:a}", t.sqnr_db, t.zero_rate, t.entropy_bits,
                     t.kurtosis, t.kurtosis_source, t.output_error);
}

bool read_statistics(const std::string& text, FittedTensor& t) {
  return std::sscanf(text.c_str(), "%la %la %la %la %la %la", &t.sqnr_db, &t.zero_rate,
                     &t.entropy_bits, &t.kurtosis, &t.kurtosis_source, &t.output_error) == 6;
}

std::string plane_tensor(size_t tensor, size_t plane) {
  return fmt::format("t{}.plane{}", tensor, plane);
}

}  // namespace

SavedLayers::SavedLayers(const std::filesystem::path& output, std::string identity)
    : directory_(output.string() + ".partial"), identity_(std::move(identity)) {}

std::filesystem::path SavedLayers::path(int64_t layer) const {
  return directory_ / fmt::format("layer-{}.gguf", layer);
}

bool SavedLayers::load(int64_t layer, const std::vector<LayerCalibration::Job>& jobs) const {
  std::error_code ec;
  if (!std::filesystem::exists(path(layer), ec)) return false;
  const auto file = GgufFile::open(path(layer));
  if (file->metadata().get_string(kIdentity).value_or("") != identity_) return false;
  for (size_t i = 0; i < jobs.size(); ++i) {
    const LayerCalibration::Job& job = jobs[i];
    FittedTensor fitted;
    const auto text = file->metadata().get_string(statistics_key(job.planned->tensor.name));
    if (!text || !read_statistics(*text, fitted)) return false;
    for (size_t plane = 0; plane < static_cast<size_t>(job.planned->n_planes()); ++plane) {
      const TensorEntry* entry = file->find(plane_tensor(i, plane));
      if (entry == nullptr || entry->type != job.planned->tensor.codec->id ||
          !(entry->shape == job.planned->tensor.shape))
        return false;
      fitted.planes.emplace_back(entry->data.begin(), entry->data.end());
    }
    *job.result = std::move(fitted);
  }
  return true;
}

void SavedLayers::save(int64_t layer, const std::vector<LayerCalibration::Job>& jobs) const {
  std::error_code ec;
  std::filesystem::create_directory(directory_, ec);
  if (ec) throw IoError(fmt::format("{}: {}", directory_.string(), ec.message()));
  GgufWriter writer(path(layer), true);
  writer.metadata().set(kIdentity, MetadataValue::string(identity_));
  for (size_t i = 0; i < jobs.size(); ++i) {
    const LayerCalibration::Job& job = jobs[i];
    writer.metadata().set(statistics_key(job.planned->tensor.name),
                          MetadataValue::string(statistics_text(*job.result)));
    for (size_t plane = 0; plane < job.result->planes.size(); ++plane)
      writer.add_tensor(plane_tensor(i, plane), job.planned->tensor.codec->id,
                        job.planned->tensor.shape);
  }
  writer.begin_data();
  for (const LayerCalibration::Job& job : jobs) {
    for (const auto& plane : job.result->planes)
      writer.write(plane);
  }
  writer.finish();
}

void SavedLayers::remove() const noexcept {
  std::error_code ec;
  std::filesystem::remove_all(directory_, ec);
}

}  // namespace ts
