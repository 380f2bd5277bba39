#include "quantize/unrotated_rows.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace ts {
namespace {

class Wrapper : public RowSource {
 public:
  Wrapper(RowSourcePtr inner, std::shared_ptr<const Rotation> rotation)
      : RowSource(inner->n_rows(), inner->n_cols()),
        inner_(std::move(inner)),
        rotation_(std::move(rotation)) {}
  void release() const noexcept override { inner_->release(); }

 protected:
  RowSourcePtr inner_;
  std::shared_ptr<const Rotation> rotation_;
};

class UnrotatedRows final : public Wrapper {
 public:
  using Wrapper::Wrapper;
  void read_row(int64_t row, std::span<float> out) const override {
    std::vector<float> stored(out.size());
    inner_->read_row(row, stored);
    unrotate_row(*rotation_, stored.data(), out.data());
  }
};

class RotatedRows final : public Wrapper {
 public:
  using Wrapper::Wrapper;
  void read_row(int64_t row, std::span<float> out) const override {
    inner_->read_row(row, out);
    rotate_row(*rotation_, out.data(), out.data());
  }
};

}  // namespace

RowSourcePtr unrotated_rows(RowSourcePtr inner, std::shared_ptr<const Rotation> rotation) {
  return std::make_shared<UnrotatedRows>(std::move(inner), std::move(rotation));
}

RowSourcePtr rotated_rows(RowSourcePtr inner, std::shared_ptr<const Rotation> rotation) {
  return std::make_shared<RotatedRows>(std::move(inner), std::move(rotation));
}

void unrotate_row(const Rotation& rotation, const float* row, float* out) {
  if (!rotation.grouped()) {
    rotation.inverse(row, out);
    return;
  }
  // inverse() leaves the heads grouped; they go back where gather() took them from.
  const GroupedHeads& heads = *rotation.grouped();
  std::vector<float> grouped(static_cast<size_t>(rotation.width()));
  rotation.inverse(row, grouped.data());
  const auto head_dim = static_cast<size_t>(heads.head_dim);
  for (int64_t slot = 0; slot < heads.n_key_heads * heads.repeats; ++slot) {
    const int64_t tiled = slot % heads.repeats * heads.n_key_heads + slot / heads.repeats;
    std::copy_n(grouped.data() + static_cast<size_t>(slot) * head_dim, head_dim,
                out + static_cast<size_t>(tiled) * head_dim);
  }
}

void rotate_row(const Rotation& rotation, const float* w, float* out) {
  const auto width = static_cast<size_t>(rotation.width());
  std::vector<double> row(w, w + width);
  rotation.fold_row(row);
  for (size_t i = 0; i < width; ++i)
    out[i] = static_cast<float>(row[i]);
}

}  // namespace ts
