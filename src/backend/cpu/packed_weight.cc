// Weights repacked into the layout of the chosen kernels, while loading.
#include <algorithm>

#include <fmt/format.h>

#include <tensorsharp/error.hpp>

#include "backend/cpu/cpu_backend_impl.h"
#include "base/page_buffer.h"
#include "base/profile.h"

namespace ts {

bool repacks(const CpuBackendOptions& options, TypeId type) {
  const int format = options.exact || !options.repack ? -1 : int_format_of(type);
  return format >= 0 && select_kernels(options.isa).table.packed[format].pack != nullptr;
}

uint64_t repacked_bytes(const CpuBackendOptions& options, TypeId type, const Shape& shape) {
  if (!repacks(options, type)) return 0;
  const int format = int_format_of(type);
  const PackedKernels& kernels = select_kernels(options.isa).table.packed[format];
  const auto rows = static_cast<uint64_t>(shape.n_rows());
  const auto groups = static_cast<uint64_t>(shape[0]) / kIntFormatInfo[format].group;
  return (rows + kernels.tile_rows - 1) / kernels.tile_rows * groups * kernels.group_bytes;
}

void CpuBackend::repack(CpuWeight& weight, const ReleaseBytes& release) {
  const profile::Scope timer("repack");
  const PackedKernels& kernels = kernels_.table.packed[weight.int_format];
  const size_t tile_bytes =
      weight.cols / kIntFormatInfo[weight.int_format].group * kernels.group_bytes;
  weight.tile_rows = kernels.tile_rows;
  const size_t n_tiles = weight.n_tiles();
  try {
    if (tile_bytes != 0 && n_tiles > SIZE_MAX / tile_bytes) throw std::bad_alloc();
    weight.tiles = tiles_.allocate(n_tiles * tile_bytes);
  } catch (const std::bad_alloc&) {
    throw ResourceExhausted(fmt::format(
        "not enough memory to repack a {} matrix of {} x {}; --no-repack runs from the mapped file",
        weight.codec->name, weight.rows, weight.cols));
  }
  auto* tiles = reinterpret_cast<uint8_t*>(weight.tiles.get());
  const auto source = [&](size_t first_tile, size_t last_tile) {
    const size_t first = std::min(first_tile * kernels.tile_rows, weight.rows);
    const size_t last = std::min(last_tile * kernels.tile_rows, weight.rows);
    return std::span(reinterpret_cast<const std::byte*>(weight.row(first)),
                     (last - first) * weight.row_bytes);
  };
  // In slices, so that source and copy of a large matrix need not be in memory together.
  constexpr size_t kSliceBytes = size_t{32} << 20;
  const size_t per_slice = std::max<size_t>(kSliceBytes / std::max<size_t>(tile_bytes, 1), 1);
  will_read(source(0, per_slice));
  for (size_t slice = 0; slice < n_tiles; slice += per_slice) {
    const size_t slice_end = std::min(n_tiles, slice + per_slice);
    will_read(source(slice_end, slice_end + per_slice));  // the disk works while we do
    pool_.parallel_for(static_cast<int64_t>(slice_end - slice), 1, [&](int64_t begin, int64_t end) {
      const size_t first_tile = slice + static_cast<size_t>(begin);
      const size_t last_tile = slice + static_cast<size_t>(end);
      prepare_to_read(source(first_tile, last_tile));
      for (size_t t = first_tile; t < last_tile; ++t) {
        const size_t first = t * kernels.tile_rows;
        kernels.pack(weight.row(first), weight.row_bytes,
                     std::min(kernels.tile_rows, weight.rows - first), weight.cols,
                     tiles + t * tile_bytes);
      }
    });
    if (release) release(source(slice, slice_end));
  }
  weight.tile_bytes = tile_bytes;
  weight.data = nullptr;
  weight.keep_alive.reset();
  weight.kernel_name += " repacked";
}

void CpuWeight::decode_row(const KernelTable& table, size_t r, float* out) const {
  if (!packed()) {
    codec->decode(reinterpret_cast<const std::byte*>(row(r)), out, cols);
    return;
  }
  const IntFormatInfo& info = kIntFormatInfo[int_format];
  std::vector<uint8_t> codes(cols);
  const size_t n_minimums = info.min_group ? cols / info.min_group : 0;
  std::vector<float> scales(cols / info.group), minimums(n_minimums);
  table.packed[int_format].unpack_row(tile_of(r), r % tile_rows, cols, codes.data(), scales.data(),
                                      minimums.data());
  for (size_t e = 0; e < cols; ++e) {
    const int code = info.max_code == 255 ? static_cast<int8_t>(codes[e]) : codes[e] - info.offset;
    out[e] = static_cast<float>(code) * scales[e / info.group];
    if (n_minimums > 0) out[e] = out[e] + minimums[e / info.min_group];
  }
}

}  // namespace ts
