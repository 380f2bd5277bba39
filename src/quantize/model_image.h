/// The model as forward passes see it during quantization: an ordinary file in memory in which the
/// matrices of a layer exist only while that layer is worked on.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "backend/backend.h"
#include "base/mapped_file.h"
#include "base/thread_pool.h"
#include "format/gguf.h"
#include "model/model.h"
#include "quantize/blas_backend.h"
#include "quantize/plan.h"
#include "quantize/tape_backend.h"

namespace ts {

class ModelImage {
 public:
  /// Takes the plan's tensors in the basis of the source; `plan` must outlive the image. Vectors
  /// and small tensors are there from the start, matrices are zeros without memory. Matrices of
  /// layers are f32; passes compute with f32 activations.
  ModelImage(const QuantizePlan& plan, int n_threads, const std::string& isa);

  const Model& model() const noexcept { return *model_; }
  ReplayingBackend& backend() noexcept { return *backend_; }
  /// The backend of the model, around backend().
  TapeBackend& tape() noexcept { return *tape_; }

  /// Fills the matrices of a layer with the source's weights.
  void fill_layer(int64_t layer, ThreadPool& pool);
  /// f32 [n_rows, n_cols] of a layer's matrix, to be replaced by quantized weights.
  std::span<float> matrix(std::string_view name);
  /// Gives the memory of a layer's matrices back.
  void drop_layer(int64_t layer);
  /// The rows of the embedding that these ids need.
  void fill_embedding(std::span<const std::vector<int32_t>> sequences);
  /// The whole output matrix (the embedding, where it serves as one).
  void fill_head(ThreadPool& pool);
  void drop_embedding_and_head();

 private:
  struct Place {
    const PlannedTensor* planned = nullptr;
    std::span<std::byte> bytes;
    const Codec* codec = nullptr;
  };
  const Place& place(std::string_view name) const;
  void fill(const Place& place, ThreadPool& pool);

  std::shared_ptr<MappedFile> bytes_;
  std::vector<Place> places_;
  std::shared_ptr<const GgufFile> file_;
  std::shared_ptr<ReplayingBackend> backend_;
  std::shared_ptr<TapeBackend> tape_;
  std::unique_ptr<const Model> model_;
};

}  // namespace ts
