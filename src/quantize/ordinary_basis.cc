#include "quantize/ordinary_basis.h"

#include <utility>
#include <vector>

#include <fmt/format.h>

#include <tensorsharp/error.hpp>

#include "base/quote_text.h"
#include "format/file_kind.h"
#include "model/hadamard_contract.h"
#include "quantize/plan.h"
#include "quantize/rotation_choice.h"
#include "quantize/unrotated_rows.h"
#include "runtime/residual_file.h"

namespace ts {
namespace {

class SummedRows final : public RowSource {
 public:
  explicit SummedRows(std::vector<RowSourcePtr> planes)
      : RowSource(planes[0]->n_rows(), planes[0]->n_cols()), planes_(std::move(planes)) {}
  void read_row(int64_t row, std::span<float> out) const override {
    planes_[0]->read_row(row, out);
    std::vector<float> values(out.size());
    for (size_t p = 1; p < planes_.size(); ++p) {
      planes_[p]->read_row(row, values);
      for (size_t c = 0; c < out.size(); ++c)
        out[c] += values[c];
    }
  }
  void release() const noexcept override {
    for (const RowSourcePtr& plane : planes_)
      plane->release();
  }

 private:
  std::vector<RowSourcePtr> planes_;
};

/// The planes of `tensor` in the sidecar, with its own in front; empty when there are none.
std::vector<RowSourcePtr> planes_of(const OutputTensor& tensor, const GgufFile& residual) {
  std::vector<RowSourcePtr> planes;
  for (int plane = 1;; ++plane) {
    const std::string name = plane_name(tensor.name, plane);
    const TensorEntry* entry = residual.find(name);
    if (entry == nullptr) break;
    const std::string what =
        fmt::format("{}: tensor {}", residual.path().string(), quote_text(name));
    if (!(entry->shape == tensor.shape))
      throw FormatError(fmt::format("{} has shape {}, expected {}", what, entry->shape.to_string(),
                                    tensor.shape.to_string()));
    if (planes.empty()) planes.push_back(tensor.rows);
    planes.push_back(codec_rows(require_codec(entry->type, what), entry->data,
                                entry->shape.n_rows(), entry->shape[0]));
  }
  return planes;
}

}  // namespace

std::set<std::string> to_ordinary_basis(ModelSource& source, const Progress& progress) {
  std::set<std::string> changed;
  if (source.gguf == nullptr) return changed;
  const auto residual = open_residual(*source.gguf, progress);
  const auto contract = HadamardContract::read(*source.gguf);
  if (residual != nullptr) {
    // They are part of what comes out here.
    std::erase_if(source.notes, [](const std::string& note) {
      return note.find("residual planes") != std::string::npos;
    });
  }
  if (residual != nullptr)
    source.keep_alive =
        std::make_shared<std::pair<std::shared_ptr<const void>, std::shared_ptr<const void>>>(
            source.keep_alive, residual);
  for (OutputTensor& tensor : source.tensors) {
    if (residual != nullptr) {
      if (auto planes = planes_of(tensor, *residual); !planes.empty()) {
        tensor.rows = std::make_shared<SummedRows>(std::move(planes));
        changed.insert(tensor.name);
      }
    }
    if (contract != nullptr) {
      const WeightRotations rotations = contract->rotations_of(tensor.name);
      if (rotations.output)
        throw Unsupported(
            fmt::format("{}: {} is rotated on its output side, too; such files can only be run",
                        source.gguf->path().string(), quote_text(tensor.name)));
      if (const auto rotation = rotations.input ? rotations.input : rotations.rows) {
        tensor.rows = unrotated_rows(std::move(tensor.rows), rotation);
        changed.insert(tensor.name);
      }
    }
    if (!changed.contains(tensor.name)) continue;
    tensor.packed = {};
    tensor.kept = &require_codec(TypeId::kF32, tensor.name);
  }
  erase_rotation_keys(source.metadata);
  source.metadata.erase(kPlanesKey);
  return changed;
}

}  // namespace ts
