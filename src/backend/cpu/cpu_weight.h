/// A weight matrix of the CPU backend: the mapped bytes and the kernels that read them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "backend/backend.h"
#include "codec/codec.h"
#include "kernels/kernels.h"

namespace ts {

class CpuWeight final : public Weight {
 public:
  TypeId type() const override { return codec->id; }
  int64_t n_rows() const override { return static_cast<int64_t>(rows); }
  int64_t n_cols() const override { return static_cast<int64_t>(cols); }
  uint64_t bytes() const override { return rows * row_bytes; }
  std::string_view kernel() const override { return kernel_name; }
  const uint8_t* row(size_t r) const noexcept { return data + r * row_bytes; }

  const Codec* codec = nullptr;
  size_t rows = 0, cols = 0, row_bytes = 0;
  const uint8_t* data = nullptr;  ///< not owned; alive through keep_alive
  int int_format = -1;            ///< IntFormat, or -1: no integer kernels or exact mode
  int float_format = -1;          ///< FloatFormat, or -1: decoded by the codec
  std::string kernel_name;
  std::shared_ptr<const void> keep_alive;
};

}  // namespace ts
