/// A weight matrix of the CPU backend: the mapped bytes, or tiles made of them, and the kernels
/// that read them.
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
  uint64_t bytes() const override { return packed() ? n_tiles() * tile_bytes : rows * row_bytes; }
  std::string_view kernel() const override { return kernel_name; }
  std::span<const std::byte> mapped_bytes() const override {
    return packed() ? std::span<const std::byte>()
                    : std::span(reinterpret_cast<const std::byte*>(data), rows * row_bytes);
  }
  std::span<const std::byte> host_bytes() const override {
    return packed() ? std::span<const std::byte>(tiles.get(), n_tiles() * tile_bytes)
                    : mapped_bytes();
  }
  /// Of a weight that is not packed.
  const uint8_t* row(size_t r) const noexcept { return data + r * row_bytes; }
  bool packed() const noexcept { return tile_bytes != 0; }
  size_t n_tiles() const noexcept { return (rows + tile_rows - 1) / tile_rows; }
  /// The tile that row r is in.
  const uint8_t* tile_of(size_t r) const noexcept {
    return reinterpret_cast<const uint8_t*>(tiles.get()) + r / tile_rows * tile_bytes;
  }
  /// f32 values of one row. May throw std::bad_alloc.
  void decode_row(const KernelTable& table, size_t r, float* out) const;

  const Codec* codec = nullptr;
  size_t rows = 0, cols = 0, row_bytes = 0;
  const uint8_t* data = nullptr;        ///< not owned; alive through keep_alive; null when packed
  std::shared_ptr<std::byte> tiles;     ///< PackedKernels of the backend's table know the layout
  size_t tile_bytes = 0;                ///< 0 = not packed
  size_t tile_rows = kPackedRows;       ///< rows of a tile
  int int_format = -1;                  ///< IntFormat, or -1: no integer kernels or exact mode
  int float_format = -1;                ///< FloatFormat, or -1: decoded by the codec
  size_t rows_per_piece = kPackedRows;  ///< see KernelChoice
  std::string kernel_name;
  std::shared_ptr<const void> keep_alive;
};

}  // namespace ts
