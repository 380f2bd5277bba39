#include "quantize/model_image.h"

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include <tensorsharp/error.hpp>

#include "backend/cpu/cpu_backend.h"
#include "base/page_buffer.h"
#include "quantize/blas_backend.h"

namespace ts {
namespace {

/// What a tensor is stored as in the image.
const Codec& image_codec(const PlannedTensor& t) {
  const Codec& f32 = require_codec(TypeId::kF32, t.tensor.name);
  const bool table = t.role == TensorRole::kEmbedding || t.role == TensorRole::kHead;
  // Tables are large and looked up or multiplied as they are: their own type is exact and small.
  return table && t.tensor.kept->encode != nullptr &&
                 (!t.tensor.packed.empty() || t.tensor.kept->exactness == Exactness::kRounded)
             ? *t.tensor.kept
             : f32;
}

}  // namespace

ModelImage::ModelImage(const QuantizePlan& plan, int n_threads, const std::string& isa) {
  Metadata metadata = plan.metadata;
  erase_rotation_keys(metadata);
  const std::string name = "the model in memory";
  std::vector<GgufOutputTensor> tensors;
  for (const PlannedTensor& t : plan.tensors)
    tensors.push_back(checked_gguf_tensor(name, t.tensor.name, image_codec(t).id, t.tensor.shape));
  const GgufOutputLayout layout = lay_out_gguf(name, metadata, tensors, plan.alignment);
  bytes_ = MappedFile::in_memory(name, layout.file_bytes());
  std::memcpy(bytes_->writable_bytes().data(), layout.header.data(), layout.header.size());
  const auto data = bytes_->writable_bytes().subspan(layout.header.size());
  for (size_t i = 0; i < plan.tensors.size(); ++i)
    places_.push_back({&plan.tensors[i], data.subspan(layout.offsets[i], tensors[i].bytes),
                       &image_codec(plan.tensors[i])});
  ThreadPool pool(1);
  for (const Place& p : places_) {
    // Matrices of layers that have no role belong to blocks that are not computed.
    const bool computed = !may_list_rotated_input(p.planned->tensor.name);
    if (p.planned->role == TensorRole::kOther && computed) fill(p, pool);
  }
  file_ = GgufFile::open(bytes_);
  CpuBackendOptions options;
  options.n_threads = n_threads;
  options.isa = isa;
  options.exact = true;
  options.repack = false;
  backend_ = make_blas_backend(make_cpu_backend(options));
  tape_ = std::make_shared<TapeBackend>(backend_);
  model_ = load_model(file_, tape_.get());
}

const ModelImage::Place& ModelImage::place(std::string_view name) const {
  for (const Place& p : places_) {
    if (p.planned->tensor.name == name) return p;
  }
  throw InternalError(fmt::format("the model in memory has no tensor {}", name));
}

void ModelImage::fill(const Place& p, ThreadPool& pool) {
  const OutputTensor& tensor = p.planned->tensor;
  if (p.codec == tensor.kept && !tensor.packed.empty()) {
    std::memcpy(p.bytes.data(), tensor.packed.data(), p.bytes.size());
    return;
  }
  const RowSource& rows = *tensor.rows;
  const auto cols = static_cast<size_t>(rows.n_cols());
  const size_t row_bytes = p.codec->row_bytes(cols);
  pool.parallel_for(rows.n_rows(), 1, [&](int64_t begin, int64_t end) {
    std::vector<float> row(cols);
    for (int64_t r = begin; r < end; ++r) {
      rows.read_row(r, row);
      p.codec->encode(row.data(), p.bytes.data() + static_cast<size_t>(r) * row_bytes, cols);
    }
  });
  rows.release();
}

void ModelImage::fill_layer(int64_t layer, ThreadPool& pool) {
  for (const Place& p : places_) {
    if (p.planned->role == TensorRole::kLinear && p.planned->layer == layer) fill(p, pool);
  }
}

std::span<float> ModelImage::matrix(std::string_view name) {
  const Place& p = place(name);
  return {reinterpret_cast<float*>(p.bytes.data()), p.bytes.size() / sizeof(float)};
}

void ModelImage::drop_layer(int64_t layer) {
  for (const Place& p : places_) {
    if (p.planned->role == TensorRole::kLinear && p.planned->layer == layer) give_back(p.bytes);
  }
}

void ModelImage::fill_embedding(std::span<const std::vector<int32_t>> sequences) {
  const Place& p = place("token_embd.weight");
  const RowSource& rows = *p.planned->tensor.rows;
  const auto cols = static_cast<size_t>(rows.n_cols());
  const size_t row_bytes = p.codec->row_bytes(cols);
  const bool copied = p.codec == p.planned->tensor.kept && !p.planned->tensor.packed.empty();
  std::vector<bool> done(static_cast<size_t>(rows.n_rows()));
  std::vector<float> row(cols);
  for (const auto& sequence : sequences) {
    for (const int32_t id : sequence) {
      const auto r = static_cast<size_t>(id);
      if (done[r]) continue;
      done[r] = true;
      std::byte* to = p.bytes.data() + r * row_bytes;
      if (copied) {
        std::memcpy(to, p.planned->tensor.packed.data() + r * row_bytes, row_bytes);
      } else {
        rows.read_row(id, row);
        p.codec->encode(row.data(), to, cols);
      }
    }
  }
}

void ModelImage::fill_head(ThreadPool& pool) {
  for (const Place& p : places_) {
    if (p.planned->role == TensorRole::kHead) return fill(p, pool);
  }
  fill(place("token_embd.weight"), pool);
}

void ModelImage::drop_embedding_and_head() {
  for (const Place& p : places_) {
    if (p.planned->role == TensorRole::kHead || p.planned->role == TensorRole::kEmbedding)
      give_back(p.bytes);
  }
}

}  // namespace ts
