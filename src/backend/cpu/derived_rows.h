/// The forms of activation rows that products read: rotated, quantized to int8, or both.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backend/activation.h"
#include "backend/cpu/quantized_rows.h"
#include "base/aligned_buffer.h"
#include "hadamard/rotation.h"
#include "kernels/kernel_table.h"

namespace ts {

/// A row is made in parts, so that several threads can share one long row. Parts are whole
/// transform blocks and whole quantization groups, hence independent: the split never changes a
/// bit.
class DerivedRows final : public ActivationFormData {
 public:
  /// `rotation` null = rows as they are; `group` 0 = f32 values. Not both.
  DerivedRows(const Rotation* rotation, size_t group) noexcept
      : rotation_(rotation), group_(group) {}
  /// The slot of this form in an Activation.
  static uint64_t key(const Rotation* rotation, size_t group) noexcept {
    return (rotation ? rotation->id() << 16 : 0) | group;
  }

  /// Whether rows of k elements can have this form.
  bool fits(size_t k) const noexcept {
    return !rotation_ || rotation_->width() == static_cast<int64_t>(k);
  }
  /// From the next reserve() on, product tables of `bytes` per group are made too, unless the rows
  /// are too many for them. True when they were not made before.
  bool add_tables(size_t bytes) noexcept {
    const bool fresh = table_bytes_ == 0;
    table_bytes_ = bytes;
    return fresh;
  }
  /// Makes room for n_rows rows of k elements; keeps memory that suffices. Throws std::bad_alloc.
  void reserve(size_t n_rows, size_t k);
  size_t n_parts() const noexcept { return n_parts_; }
  /// Rough time of one part.
  double part_cost_ns() const noexcept;
  /// Makes one part of a row from the whole row x [k]. Different parts may be made concurrently.
  void fill(const KernelTable& table, size_t row, size_t part, const float* x) noexcept;

  /// Null when the form is f32.
  const ActRow* quantized() const noexcept { return group_ > 0 ? quantized_.rows() : nullptr; }
  const float* values() const noexcept { return values_.data(); }
  size_t stride() const noexcept { return stride_; }

 private:
  const Rotation* rotation_;
  size_t group_;
  size_t table_bytes_ = 0;
  size_t k_ = 0, part_elems_ = 0, n_parts_ = 0, stride_ = 0;
  AlignedBuffer<float> values_;
  QuantizedRows quantized_;
};

}  // namespace ts
