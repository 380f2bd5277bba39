// The self-test at load: the chosen kernels against the reference on rows of the loaded weights.
#include <bit>
#include <chrono>
#include <cstring>
#include <set>
#include <tuple>

#include <fmt/format.h>

#include <tensorsharp/error.hpp>

#include "backend/cpu/checks.h"
#include "backend/cpu/cpu_backend_impl.h"
#include "backend/cpu/quantized_rows.h"

namespace ts {
namespace {

constexpr size_t kRows = 3;         ///< weight rows compared per shape
constexpr size_t kActivations = 3;  ///< activation rows of the several-row product

/// Deterministic activations between -1 and 1 with one large outlier per row.
std::vector<float> make_activations(size_t k) {
  std::vector<float> x(kActivations * k);
  uint32_t state = 0x9E3779B9u;
  for (float& v : x) {
    state = state * 1664525u + 1013904223u;
    v = static_cast<float>(static_cast<int32_t>(state >> 8) - (1 << 23)) * 0x1p-23f;
  }
  for (size_t m = 0; m < kActivations; ++m)
    x[m * k + m % k] *= 50.0F;
  return x;
}

QuantizedRows quantized(const KernelTable& table, const CpuWeight& w, const std::vector<float>& x,
                        bool tables) {
  QuantizedRows act;
  act.reserve(kActivations, w.cols, kIntFormatInfo[w.int_format].act_group,
              tables ? table.table_bytes : 0);
  for (size_t m = 0; m < kActivations; ++m)
    act.fill(table, m, 0, w.cols, &x[m * w.cols]);
  return act;
}

/// Products of rows [first, first + n_rows), which begin a tile, with one row, then with all.
std::vector<float> packed_products(const KernelTable& table, const CpuWeight& w, size_t first,
                                   size_t n_rows, const std::vector<float>& x) {
  const PackedKernels& kernels = table.packed[w.int_format];
  const QuantizedRows act = quantized(table, w, x, kernels.tables);
  AlignedBuffer<std::byte> scratch(kPackedScratchBytes);
  std::vector<float> y(n_rows * (1 + kActivations));
  kernels.gemv(w.tile_of(first), n_rows, w.cols, act.rows(), y.data());
  kernels.gemm(w.tile_of(first), n_rows, w.cols, act.rows(), kActivations, y.data() + n_rows,
               n_rows, scratch.data());
  return y;
}

/// Products of rows [first, first + n_rows) with one row (direct kernel), then with all. The rows
/// of a packed weight are read with `layout`.
std::vector<float> products(const KernelTable& table, const CpuWeight& w, size_t first,
                            size_t n_rows, const std::vector<float>& x,
                            const PackedKernels* layout) {
  std::vector<float> y(n_rows * (1 + kActivations));
  float* single = y.data();
  float* several = y.data() + n_rows;
  const size_t k = w.cols;
  if (w.int_format < 0) {
    std::vector<float> decoded(n_rows * k);
    for (size_t r = 0; r < n_rows; ++r) {
      if (w.float_format >= 0)
        table.to_f32[w.float_format](w.row(first + r), k, &decoded[r * k]);
      else
        w.codec->decode(reinterpret_cast<const std::byte*>(w.row(first + r)), &decoded[r * k], k);
    }
    if (w.float_format >= 0)
      table.float_gemv[w.float_format](w.row(first), w.row_bytes, n_rows, k, x.data(), single);
    table.float_tile(decoded.data(), k, n_rows, k, x.data(), k, kActivations, several, n_rows);
    return y;
  }
  const auto format = static_cast<size_t>(w.int_format);
  const IntFormatInfo& info = kIntFormatInfo[format];
  const QuantizedRows act = quantized(table, w, x, false);
  const auto padded = [](size_t n) { return (n + 63) / 64 * 64; };
  const size_t code_stride = padded(k);
  const size_t scale_stride = padded(k / info.group);
  const size_t min_stride = info.min_group ? padded(k / info.min_group) : 0;
  std::vector<uint8_t> codes(n_rows * code_stride);
  std::vector<float> scales(n_rows * scale_stride), mins(n_rows * min_stride);
  for (size_t r = 0; r < n_rows; ++r) {
    uint8_t* row_codes = &codes[r * code_stride];
    float* row_scales = &scales[r * scale_stride];
    if (w.packed())
      layout->unpack_row(w.tile_of(first + r), (first + r) % w.tile_rows, k, row_codes, row_scales,
                         min_stride ? &mins[r * min_stride] : nullptr);
    else
      table.unpack[format](w.row(first + r), k, row_codes, row_scales,
                           min_stride ? &mins[r * min_stride] : nullptr);
  }
  const WeightTile tile = {codes.data(), scales.data(), mins.data(), code_stride,
                           scale_stride, min_stride,    n_rows,      k};
  table.int_tile(&info, &tile, act.rows(), kActivations, several, n_rows);
  if (table.int_gemv[format] && !w.packed())
    table.int_gemv[format](w.row(first), w.row_bytes, n_rows, k, act.rows(), single);
  else
    std::memcpy(single, several, n_rows * sizeof(float));
  return y;
}

/// The row rotated, then another one un-rotated.
std::vector<float> transforms(const KernelTable& table, const Rotation& rotation,
                              const std::vector<float>& x) {
  const auto n = static_cast<size_t>(rotation.width());
  const SignedTransform t = {n, static_cast<size_t>(rotation.block()), rotation.factor(),
                             rotation.flips()};
  std::vector<float> y(2 * n);
  table.rotate(&t, x.data(), y.data());
  table.unrotate(&t, x.data() + n, y.data() + n);
  return y;
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  for (size_t i = 0; i < a.size(); ++i) {
    // NaN equals NaN: damaged weights are reported elsewhere, this is about kernels.
    if (std::bit_cast<uint32_t>(a[i]) != std::bit_cast<uint32_t>(b[i]) &&
        (a[i] == a[i] || b[i] == b[i]))
      return false;
  }
  return true;
}

}  // namespace

KernelCheck check_kernels(const Backend& backend, std::span<const Weight* const> weights,
                          std::span<const Rotation* const> rotations, const KernelFault& fault) {
  const auto* cpu = dynamic_cast<const CpuBackend*>(&backend);
  check_argument(cpu != nullptr, "check_kernels: not a CPU backend");
  const auto start = std::chrono::steady_clock::now();
  const KernelTable& chosen = cpu->kernels().table;
  const KernelTable& reference = select_kernels("ref").table;
  std::set<std::tuple<TypeId, size_t, size_t>> seen;
  KernelCheck report;
  for (const Weight* weight : weights) {
    const CpuWeight& w = cpu_weight(*weight);
    if (!seen.insert({w.codec->id, w.rows, w.cols}).second) continue;
    ++report.n_shapes;
    const std::vector<float> x = make_activations(w.cols);
    // The last rows: those a kernel that works in blocks of rows treats specially.
    const size_t first =
        w.packed() ? (w.n_tiles() - 1) * w.tile_rows : w.rows - std::min(kRows, w.rows);
    const size_t n = w.rows - first;
    const PackedKernels* layout = w.packed() ? &chosen.packed[w.int_format] : nullptr;
    std::vector<float> got = layout ? packed_products(chosen, w, first, n, x)
                                    : products(chosen, w, first, n, x, nullptr);
    if (fault) fault(got);
    if (!same_bits(got, products(reference, w, first, n, x, layout)))
      throw BackendError(
          fmt::format("the {} kernel of {} computes wrong results for {} x {} matrices on this CPU "
                      "({})\ncontinue with --isa ref, and please report it",
                      backend.isa(), w.codec->name, w.rows, w.cols, w.kernel_name));
  }
  std::set<std::pair<int64_t, int64_t>> seen_transforms;
  for (const Rotation* rotation : rotations) {
    if (!seen_transforms.insert({rotation->width(), rotation->block()}).second) continue;
    ++report.n_transforms;
    const std::vector<float> x = make_activations(static_cast<size_t>(rotation->width()));
    std::vector<float> got = transforms(chosen, *rotation, x);
    if (fault) fault(got);
    if (!same_bits(got, transforms(reference, *rotation, x)))
      throw BackendError(fmt::format(
          "the {} kernel of the Hadamard transform computes wrong results for rows of {} in "
          "blocks of {} on this CPU\ncontinue with --isa ref, and please report it",
          backend.isa(), rotation->width(), rotation->block()));
  }
  report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return report;
}

}  // namespace ts
