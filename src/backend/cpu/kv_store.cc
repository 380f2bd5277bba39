#include "backend/cpu/kv_store.h"

#include <cstring>
#include <new>

#include "base/checked_math.h"

namespace ts {
namespace {
constexpr size_t kQ8Group = 32;
}

CpuKvCache::CpuKvCache(const KvShape& shape, KvType type, bool huge_pages)
    : shape_(shape), type_(type) {
  const auto width =
      checked_mul(static_cast<uint64_t>(shape.n_kv_heads), static_cast<uint64_t>(shape.head_dim));
  if (!width || *width > SIZE_MAX / 8) throw std::bad_alloc();
  switch (type) {
    case KvType::kF32:
      row_bytes_ = *width * 4;
      break;
    case KvType::kF16:
      row_bytes_ = *width * 2;
      break;
    case KvType::kQ8:
      head_scales_ = (static_cast<size_t>(shape.head_dim) + kQ8Group - 1) / kQ8Group;
      row_bytes_ = (*width + 3) / 4 * 4 + static_cast<size_t>(shape.n_kv_heads) * head_scales_ * 4;
      break;
  }
  const auto half = checked_mul(static_cast<uint64_t>(shape.capacity), row_bytes_);
  const auto total = half ? checked_mul(*half, 2) : std::nullopt;
  if (!total || *total > SIZE_MAX / 2) throw std::bad_alloc();
  // Pages take memory only once touched: a long context costs what it uses.
  pages_ = PageBuffer(static_cast<size_t>(*total), huge_pages ? 8 * PageBuffer::kHugePage : 0);
}

void CpuKvCache::store(const KernelTable& table, const float* x, std::byte* row) const {
  const size_t heads = static_cast<size_t>(shape_.n_kv_heads);
  const size_t dim = static_cast<size_t>(shape_.head_dim);
  const size_t width = heads * dim;
  switch (type_) {
    case KvType::kF32:
      std::memcpy(row, x, width * 4);
      break;
    case KvType::kF16:
      table.f32_to_f16(x, width, reinterpret_cast<uint16_t*>(row));
      break;
    case KvType::kQ8: {
      auto* codes = reinterpret_cast<int8_t*>(row);
      auto* scales = reinterpret_cast<float*>(row + (width + 3) / 4 * 4);
      // The sums are by-products nobody reads here: 256 groups at a time into scratch.
      constexpr size_t kGroups = 256;
      int32_t isum[kGroups];
      float fsum[kGroups];
      for (size_t h = 0; h < heads; ++h) {
        for (size_t d = 0; d < dim; d += kGroups * kQ8Group) {
          const size_t n = dim - d < kGroups * kQ8Group ? dim - d : kGroups * kQ8Group;
          const ActRowOut out = {codes + h * dim + d,
                                 scales + h * head_scales_ + d / kQ8Group,
                                 isum,
                                 fsum,
                                 nullptr,
                                 nullptr,
                                 nullptr};
          table.quantize_row(x + h * dim + d, n, kQ8Group, &out);
        }
      }
      break;
    }
  }
}

void CpuKvCache::load(const KernelTable& table, const std::byte* first_row, size_t head, size_t n,
                      float* dst) const {
  const size_t dim = static_cast<size_t>(shape_.head_dim);
  const size_t width = static_cast<size_t>(shape_.n_kv_heads) * dim;
  for (size_t i = 0; i < n; ++i, dst += dim) {
    const auto* row = reinterpret_cast<const uint8_t*>(first_row + i * row_bytes_);
    switch (type_) {
      case KvType::kF32:
        std::memcpy(dst, row + head * dim * 4, dim * 4);
        break;
      case KvType::kF16:
        table.to_f32[kFloatF16](row + head * dim * 2, dim, dst);
        break;
      case KvType::kQ8:
        table.dequantize32(
            reinterpret_cast<const int8_t*>(row) + head * dim,
            reinterpret_cast<const float*>(row + (width + 3) / 4 * 4) + head * head_scales_, dim,
            dst);
        break;
    }
  }
}

}  // namespace ts
