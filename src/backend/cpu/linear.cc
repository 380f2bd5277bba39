// Products of weights and activations: rotate and quantize the rows once, then one parallel region
// over the rows of all matrices, in which every thread begins with a contiguous share (one
// sequential stream per thread).
#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include <tensorsharp/error.hpp>

#include "backend/cpu/checks.h"
#include "backend/cpu/cpu_backend_impl.h"
#include "backend/cpu/derived_rows.h"
#include "base/profile.h"

namespace ts {
namespace {

/// Unpacked rows a thread works on at a time: they stay in its second-level cache while all
/// activation rows pass by.
constexpr size_t kTileBytes = size_t{96} << 10;
constexpr size_t kMaxTileRows = 64;

size_t round_up(size_t n, size_t unit) {
  return (n + unit - 1) / unit * unit;
}

/// How a tile of one weight lies in a thread's scratch.
struct TileLayout {
  size_t n_rows = 0, code_stride = 0, scale_stride = 0, min_stride = 0;
  size_t scales_at = 0, mins_at = 0, bytes = 0;
};

TileLayout int_layout(const CpuWeight& w, const IntFormatInfo& format) {
  TileLayout t;
  t.code_stride = round_up(w.cols, 64);
  t.scale_stride = round_up(w.cols / format.group, 8);
  t.min_stride = format.min_group ? round_up(w.cols / format.min_group, 8) : 0;
  t.n_rows = std::clamp<size_t>(kTileBytes / t.code_stride, 4, kMaxTileRows);
  t.scales_at = t.n_rows * t.code_stride;
  t.mins_at = t.scales_at + t.n_rows * t.scale_stride * sizeof(float);
  t.bytes = t.mins_at + t.n_rows * t.min_stride * sizeof(float);
  return t;
}

TileLayout float_layout(const CpuWeight& w) {
  TileLayout t;
  t.code_stride = round_up(w.cols, 16);  // floats
  t.n_rows = std::clamp<size_t>(kTileBytes / sizeof(float) / t.code_stride, 2, kMaxTileRows);
  t.bytes = t.n_rows * t.code_stride * sizeof(float);
  return t;
}

template <typename T>
void clear_tail(T* row, size_t used, size_t stride) {
  std::memset(row + used, 0, (stride - used) * sizeof(T));
}

/// One job with what its threads need.
struct Plan {
  const LinearJob* job = nullptr;
  const CpuWeight* weight = nullptr;
  const ActRow* act = nullptr;  ///< null = f32 rows:
  const float* x = nullptr;
  size_t x_stride = 0;
  TileLayout tile;
  int64_t unit_rows = 0;   ///< rows that are handed to a thread at once, or a multiple of it
  int64_t first_unit = 0;  ///< among the units of all jobs
};

void int_rows(const KernelTable& table, const Plan& plan, int64_t begin, int64_t end,
              std::byte* scratch) {
  const CpuWeight& w = *plan.weight;
  const auto format = static_cast<size_t>(w.int_format);
  const IntFormatInfo& info = kIntFormatInfo[format];
  const Mat& y = plan.job->y;
  if (y.rows == 1 && table.int_gemv[format]) {
    table.int_gemv[format](w.row(static_cast<size_t>(begin)), w.row_bytes,
                           static_cast<size_t>(end - begin), w.cols, plan.act, y.row(0) + begin);
    return;
  }
  const TileLayout& t = plan.tile;
  auto* codes = reinterpret_cast<uint8_t*>(scratch);
  auto* scales = reinterpret_cast<float*>(scratch + t.scales_at);
  auto* mins = t.min_stride ? reinterpret_cast<float*>(scratch + t.mins_at) : nullptr;
  for (int64_t r = begin; r < end; r += static_cast<int64_t>(t.n_rows)) {
    const size_t n = std::min(t.n_rows, static_cast<size_t>(end - r));
    // Padding of codes and scales must be zero; unpackers do not touch it.
    for (size_t i = 0; i < n; ++i) {
      clear_tail(codes + i * t.code_stride, w.cols, t.code_stride);
      clear_tail(scales + i * t.scale_stride, w.cols / info.group, t.scale_stride);
      if (mins) clear_tail(mins + i * t.min_stride, w.cols / info.min_group, t.min_stride);
    }
    for (size_t i = 0; i < n; ++i)
      table.unpack[format](w.row(static_cast<size_t>(r) + i), w.cols, codes + i * t.code_stride,
                           scales + i * t.scale_stride, mins ? mins + i * t.min_stride : nullptr);
    const WeightTile tile = {codes,          scales,       mins, t.code_stride,
                             t.scale_stride, t.min_stride, n,    w.cols};
    table.int_tile(&info, &tile, plan.act, static_cast<size_t>(y.rows), y.row(0) + r,
                   static_cast<size_t>(y.stride));
  }
}

void packed_rows(const KernelTable& table, const Plan& plan, int64_t begin, int64_t end,
                 std::byte* scratch) {
  const CpuWeight& w = *plan.weight;
  const PackedKernels& kernels = table.packed[w.int_format];
  const Mat& y = plan.job->y;
  const uint8_t* tiles = w.tile_of(static_cast<size_t>(begin));
  const auto n_rows = static_cast<size_t>(end - begin);
  if (y.rows == 1)
    kernels.gemv(tiles, n_rows, w.cols, plan.act, y.row(0) + begin);
  else
    kernels.gemm(tiles, n_rows, w.cols, plan.act, static_cast<size_t>(y.rows), y.row(0) + begin,
                 static_cast<size_t>(y.stride), scratch);
}

void float_rows(const KernelTable& table, const Plan& plan, int64_t begin, int64_t end,
                std::byte* scratch) {
  const CpuWeight& w = *plan.weight;
  const Mat& y = plan.job->y;
  if (y.rows == 1 && w.float_format >= 0) {
    table.float_gemv[w.float_format](w.row(static_cast<size_t>(begin)), w.row_bytes,
                                     static_cast<size_t>(end - begin), w.cols, plan.x,
                                     y.row(0) + begin);
    return;
  }
  auto* tile = reinterpret_cast<float*>(scratch);
  const size_t stride = plan.tile.code_stride;
  for (int64_t r = begin; r < end; r += static_cast<int64_t>(plan.tile.n_rows)) {
    const size_t n = std::min(plan.tile.n_rows, static_cast<size_t>(end - r));
    for (size_t i = 0; i < n; ++i) {
      const uint8_t* row = w.row(static_cast<size_t>(r) + i);
      if (w.float_format >= 0)
        table.to_f32[w.float_format](row, w.cols, tile + i * stride);
      else
        w.codec->decode(reinterpret_cast<const std::byte*>(row), tile + i * stride, w.cols);
    }
    table.float_tile(tile, stride, n, w.cols, plan.x, plan.x_stride, static_cast<size_t>(y.rows),
                     y.row(0) + r, static_cast<size_t>(y.stride));
  }
}

}  // namespace

void CpuBackend::linear(std::span<const LinearJob> jobs, Activation& x) {
  const Mat rows = x.rows();
  check_mat(rows, rows.rows, rows.cols, "linear: x");
  if (rows.rows == 0 || jobs.empty()) return;
  const std::lock_guard lock(mutex_);
  const KernelTable& table = kernels_.table;

  std::vector<Plan> plans(jobs.size());
  size_t scratch_bytes = 0;
  int64_t n_units = 0;
  for (size_t j = 0; j < jobs.size(); ++j) {
    Plan& plan = plans[j];
    plan.job = &jobs[j];
    check_argument(jobs[j].weight != nullptr, "linear: a job without a weight");
    plan.weight = &cpu_weight(*jobs[j].weight);
    if (static_cast<int64_t>(plan.weight->cols) != rows.cols)
      throw InvalidArgument(fmt::format("linear: rows of {} elements, but the weight takes {}",
                                        rows.cols, plan.weight->cols));
    check_mat(jobs[j].y, rows.rows, plan.weight->n_rows(), "linear: y");
    check_argument(!plan.job->input || plan.job->input->width() == rows.cols,
                   "linear: the input rotation has another width");
    check_argument(!plan.job->output || (plan.job->output->width() == plan.weight->n_rows() &&
                                         !plan.job->output->grouped()),
                   "linear: the output rotation has another width, or permutes");
    if (plan.weight->int_format >= 0) {
      const IntFormatInfo& info = kIntFormatInfo[plan.weight->int_format];
      const bool packed = plan.weight->packed();
      if (packed)
        plan.tile.bytes = kPackedScratchBytes;
      else
        plan.tile = int_layout(*plan.weight, info);
      const bool tables = packed && table.packed[plan.weight->int_format].tables;
      plan.act = derived(x, plan.job->input, info.act_group, tables).quantized();
    } else {
      plan.tile = float_layout(*plan.weight);
      if (plan.job->input) {
        const DerivedRows& form = derived(x, plan.job->input, 0);
        plan.x = form.values();
        plan.x_stride = form.stride();
      } else {
        plan.x = rows.row(0);
        plan.x_stride = static_cast<size_t>(rows.stride);
      }
    }
    scratch_bytes = std::max(scratch_bytes, plan.tile.bytes);
    // Whole tiles where weights are unpacked for several rows of activations.
    const int64_t whole = plan.weight->packed() ? static_cast<int64_t>(plan.weight->tile_rows) : 1;
    if (rows.rows == 1)
      plan.unit_rows = std::max(static_cast<int64_t>(plan.weight->rows_per_piece), whole);
    else
      plan.unit_rows = plan.weight->packed() ? whole : static_cast<int64_t>(plan.tile.n_rows);
    plan.first_unit = n_units;
    n_units += (plan.weight->n_rows() + plan.unit_rows - 1) / plan.unit_rows;
  }
  reserve_scratch(scratch_bytes, "linear");

  double products = 0;
  for (const Plan& plan : plans)
    products += static_cast<double>(plan.weight->rows) * static_cast<double>(plan.weight->cols);
  const profile::Scope timer("linear", products * static_cast<double>(rows.rows));
  pool_.for_ranges(n_units, 1, [&](int thread, int64_t first, int64_t last) {
    for (const Plan& plan : plans) {
      const int64_t n_rows = plan.weight->n_rows();
      const int64_t begin = std::max<int64_t>(first - plan.first_unit, 0) * plan.unit_rows;
      const int64_t end = std::min((last - plan.first_unit) * plan.unit_rows, n_rows);
      if (begin >= end) continue;
      if (plan.weight->packed())
        packed_rows(table, plan, begin, end, scratch(thread));
      else if (plan.act)
        int_rows(table, plan, begin, end, scratch(thread));
      else
        float_rows(table, plan, begin, end, scratch(thread));
      if (plan.job->bias && !plan.job->output) {
        for (int64_t m = 0; m < rows.rows; ++m)
          table.add(plan.job->y.row(m) + begin, plan.job->bias + begin,
                    static_cast<size_t>(end - begin));
      }
    }
  });
  for (const LinearJob& job : jobs) {
    if (job.output) rotate_output(job);
  }
}

void CpuBackend::reserve_form(DerivedRows& form, Mat rows) {
  try {
    form.reserve(static_cast<size_t>(rows.rows), static_cast<size_t>(rows.cols));
  } catch (const std::bad_alloc&) {
    throw ResourceExhausted(fmt::format(
        "not enough memory for {} x {} rotated or quantized activations", rows.rows, rows.cols));
  }
}

const DerivedRows& CpuBackend::derived(Activation& x, const Rotation* rotation, size_t group,
                                       bool tables) {
  Activation::Slot& slot = x.slot(DerivedRows::key(rotation, group));
  if (!slot.data) slot.data = std::make_unique<DerivedRows>(rotation, group);
  auto& form = static_cast<DerivedRows&>(*slot.data);
  slot.read = true;
  // Once asked for, tables are made with every later form of the same rows.
  const bool without = tables && form.add_tables(kernels_.table.table_bytes);
  if (slot.valid && !without) return form;
  const profile::Scope timer(!rotation ? "quantize" : group > 0 ? "rotate+quantize" : "rotate");
  const Mat rows = x.rows();
  reserve_form(form, rows);
  const auto n_parts = static_cast<int64_t>(form.n_parts());
  for_rows(rows.rows * n_parts, form.part_cost_ns(), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      form.fill(kernels_.table, static_cast<size_t>(i / n_parts), static_cast<size_t>(i % n_parts),
                rows.row(i / n_parts));
  });
  slot.valid = true;
  return form;
}

void CpuBackend::rotate_output(const LinearJob& job) {
  const Rotation& rotation = *job.output;
  const int64_t part = std::max<int64_t>(rotation.block(), 1024);
  const int64_t n_parts = (job.y.cols + part - 1) / part;
  for_rows(job.y.rows * n_parts, 0.4 * static_cast<double>(part), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t first = i % n_parts * part;
      const auto count = static_cast<size_t>(std::min(part, job.y.cols - first));
      const SignedTransform transform = {count, static_cast<size_t>(rotation.block()),
                                         rotation.factor(),
                                         rotation.flips() ? rotation.flips() + first : nullptr};
      float* y = job.y.row(i / n_parts) + first;
      kernels_.table.unrotate(&transform, y, y);
      if (job.bias) kernels_.table.add(y, job.bias + first, count);
    }
  });
}

}  // namespace ts
