/// Activation rows quantized to int8, the form that integer kernels read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "backend/activation.h"
#include "base/aligned_buffer.h"
#include "kernels/kernel_table.h"

namespace ts {

class QuantizedRows final : public ActivationFormData {
 public:
  /// Makes room for n_rows rows of k elements in groups of `group`; keeps memory that suffices.
  /// With table_bytes > 0 fill() makes product tables of that size per group too, if the rows are
  /// at most kTableColumns. Throws std::bad_alloc.
  void reserve(size_t n_rows, size_t k, size_t group, size_t table_bytes = 0);
  /// Quantizes elements [begin, begin + count) of a row from x [count]. `begin` is a multiple of
  /// 128; the part ends at such a multiple or at the end of the row. Parts and rows are
  /// independent, so threads may fill different ones.
  void fill(const KernelTable& table, size_t row, size_t begin, size_t count,
            const float* x) noexcept;
  const ActRow* rows() const noexcept { return rows_.data(); }

 private:
  size_t k_ = 0, group_ = 0;
  std::vector<ActRow> rows_;
  AlignedBuffer<int8_t> codes_;
  AlignedBuffer<float> floats_;
  AlignedBuffer<int32_t> ints_;
  AlignedBuffer<int8_t> interleaved_, tables_;
  size_t code_stride_ = 0, group_stride_ = 0, group16_stride_ = 0, table_bytes_ = 0;

  void set_tables(size_t n_rows, size_t table_bytes);
};

}  // namespace ts
