#include "backend/cpu/derived_rows.h"

#include <algorithm>
#include <new>

#include "hadamard/transform.h"

namespace ts {
namespace {

/// Elements of a part of a rotated row, unless the transform's block is larger.
constexpr size_t kPartElems = 1024;

}  // namespace

void DerivedRows::reserve(size_t n_rows, size_t k) {
  k_ = k;
  part_elems_ = rotation_ ? std::max(kPartElems, static_cast<size_t>(rotation_->block()))
                          : std::max<size_t>(k, 1);
  n_parts_ = (k + part_elems_ - 1) / part_elems_;
  if (group_ > 0) {
    quantized_.reserve(n_rows, k, group_, table_bytes_);
    return;
  }
  stride_ = (k + 15) / 16 * 16;
  if (n_rows > SIZE_MAX / sizeof(float) / std::max<size_t>(stride_, 1)) throw std::bad_alloc();
  if (values_.size() >= n_rows * stride_) return;
  values_ = {};  // free first: old and new never exist together
  values_ = AlignedBuffer<float>(n_rows * stride_);
}

double DerivedRows::part_cost_ns() const noexcept {
  const double per_elem =
      (rotation_ ? 0.4 : 0.0) + (group_ > 0 ? 0.4 : 0.0) + (table_bytes_ > 0 ? 1.2 : 0.0);
  return per_elem * static_cast<double>(std::min(part_elems_, k_));
}

void DerivedRows::fill(const KernelTable& table, size_t row, size_t part, const float* x) noexcept {
  if (!rotation_) {
    quantized_.fill(table, row, 0, k_, x);
    return;
  }
  const size_t begin = part * part_elems_;
  const size_t count = std::min(part_elems_, k_ - begin);
  alignas(64) float rotated[kMaxTransformBlock];
  float* out = group_ > 0 ? rotated : values_.data() + row * stride_ + begin;
  const float* in = x + begin;
  if (rotation_->grouped()) {
    rotation_->gather(x, begin, count, out);
    in = out;
  }
  const uint32_t* flips = rotation_->flips();
  const SignedTransform transform = {count, static_cast<size_t>(rotation_->block()),
                                     rotation_->factor(), flips ? flips + begin : nullptr};
  table.rotate(&transform, in, out);
  if (group_ > 0) quantized_.fill(table, row, begin, count, out);
}

}  // namespace ts
