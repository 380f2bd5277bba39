/// A model of random weights in the shape of a published one: the same tensors, types, sizes and
/// metadata, for measuring speed and memory where the published file is not at hand. What it says
/// is noise.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/progress.h"
#include "format/gguf.h"
#include "model/synthetic/shapes.h"
#include "model/synthetic/weights.h"

namespace ts {

struct SyntheticOptions {
  std::string scheme;  ///< a type name; empty = the shape's own
  /// Fewer layers than the shape has, from the front.
  std::optional<int64_t> n_layers;
  uint64_t seed = 1;  ///< the same seed gives the same bytes
};

/// The plan of such a model: small, however large the model. Immutable.
class SyntheticModel {
 public:
  /// Errors: InvalidArgument (unknown type, a type whose blocks do not divide the shape's widths,
  /// more layers than the shape has).
  SyntheticModel(const SyntheticShape& shape, const SyntheticOptions& options);

  const std::string& name() const noexcept { return name_; }
  const std::string& scheme() const noexcept { return scheme_; }
  uint64_t seed() const noexcept { return seed_; }
  const Metadata& metadata() const noexcept { return metadata_; }
  /// In file order.
  std::span<const SyntheticTensor> tensors() const noexcept { return tensors_; }
  /// Bytes of all tensors, and the number of their elements.
  uint64_t tensor_bytes() const noexcept { return tensor_bytes_; }
  int64_t n_parameters() const noexcept { return n_parameters_; }

  /// Writes the model as a GGUF file and returns its size. Errors: as AtomicFile; Cancelled.
  uint64_t write(const std::filesystem::path& path, bool overwrite, const Progress& progress) const;

 private:
  void add_tensors(const SyntheticShape& shape, const Codec& matrix_type);
  void add(std::string name, TypeId type, const Shape& shape, SyntheticContent content);
  void add_metadata(const SyntheticShape& shape, const Codec& matrix_type);
  void add_rotation(const SyntheticShape& shape);

  std::string name_, scheme_;
  uint64_t seed_;
  int64_t n_layers_;
  Metadata metadata_;
  std::vector<SyntheticTensor> tensors_;
  uint64_t tensor_bytes_ = 0;
  int64_t n_parameters_ = 0;
};

/// A synthetic model in memory, as an opened file. It begins with the header alone: what the model
/// needs can be read off before the weights take memory.
class SyntheticImage {
 public:
  /// `model` must outlive the call only. Errors: ResourceExhausted (address space).
  explicit SyntheticImage(const SyntheticModel& model, bool huge_pages = true);
  /// Tensor data are zero, and take no memory, until fill() has returned.
  const std::shared_ptr<const GgufFile>& file() const noexcept { return file_; }
  /// Writes the weights into place, on `n_threads` threads; `model` is the constructor's.
  void fill(const SyntheticModel& model, int n_threads, const Progress& progress);

 private:
  std::shared_ptr<MappedFile> bytes_;
  GgufOutputLayout layout_;
  std::shared_ptr<const GgufFile> file_;
};

}  // namespace ts
