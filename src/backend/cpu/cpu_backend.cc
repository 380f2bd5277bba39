#include "backend/cpu/cpu_backend.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <limits>

#include <fmt/format.h>

#include <tensorsharp/error.hpp>

#include "backend/cpu/checks.h"
#include "backend/cpu/cpu_backend_impl.h"
#include "backend/cpu/kernel_tuner.h"
#include "base/cpu_topology.h"
#include "base/log.h"
#include "base/page_buffer.h"
#include "base/profile.h"

namespace ts {
namespace {

class HostBuffer final : public Buffer {
 public:
  HostBuffer(size_t n_floats, bool huge_pages)
      : n_floats_(n_floats),
        pages_(n_floats > SIZE_MAX / sizeof(float) ? SIZE_MAX : n_floats * sizeof(float),
               huge_pages ? 4 * PageBuffer::kHugePage : 0) {}
  size_t n_floats() const override { return n_floats_; }
  float* host() override { return reinterpret_cast<float*>(pages_.data()); }

 private:
  size_t n_floats_;
  PageBuffer pages_;
};

}  // namespace

CpuBackend::CpuBackend(const CpuBackendOptions& options, int n_threads, const Kernels& kernels)
    : kernels_(kernels),
      exact_(options.exact),
      repack_(options.repack),
      huge_pages_(options.huge_pages),
      pool_(n_threads, options.cores),
      tiles_(options.huge_pages),
      scratch_(static_cast<size_t>(n_threads)) {
  if (!options.kernel_choices.empty()) choices_.emplace(options.kernel_choices);
}

std::shared_ptr<Backend> make_cpu_backend(const CpuBackendOptions& options) {
  const Kernels& kernels = select_kernels(options.isa);
  const int n_threads = options.n_threads != 0 ? options.n_threads : default_threads().n_threads;
  return std::make_shared<CpuBackend>(options, n_threads, kernels);
}

std::shared_ptr<Buffer> CpuBackend::allocate(size_t n_floats, std::string_view what) {
  try {
    return std::make_shared<HostBuffer>(n_floats, huge_pages_);
  } catch (const std::bad_alloc&) {
    throw ResourceExhausted(
        fmt::format("not enough memory for {} ({} f32 values); use a smaller context or prefill "
                    "chunk",
                    what, n_floats));
  }
}

void CpuBackend::reserve_scratch(size_t bytes, std::string_view what) {
  try {
    for (auto& buffer : scratch_) {
      if (buffer.size() >= bytes) continue;
      buffer = {};
      buffer = AlignedBuffer<std::byte>(bytes);
    }
  } catch (const std::bad_alloc&) {
    throw ResourceExhausted(
        fmt::format("not enough memory for the scratch of {} ({} bytes per thread)", what, bytes));
  }
}

std::shared_ptr<const Weight> CpuBackend::upload(const TensorView& tensor,
                                                 std::shared_ptr<const void> keep_alive,
                                                 WeightUse use, const ReleaseBytes& release) {
  const Codec& codec = require_codec(tensor.type, tensor.name);
  const Shape& shape = tensor.shape;
  if (shape.ne[0] < 1 || shape.ne[1] < 1 || shape.ne[2] != 1 || shape.ne[3] != 1)
    throw FormatError(
        fmt::format("{}: shape {} is not that of a matrix", tensor.name, shape.to_string()));
  const auto bytes = tensor_bytes(codec, shape);
  if (!bytes)
    throw FormatError(fmt::format("{}: rows of {} elements do not consist of {} blocks of {}",
                                  tensor.name, shape.ne[0], codec.name, codec.block_elems));
  if (*bytes != tensor.data.size())
    throw FormatError(fmt::format("{}: {} bytes of data, but {} {} needs {}", tensor.name,
                                  tensor.data.size(), codec.name, shape.to_string(), *bytes));
  if (shape.ne[0] > std::numeric_limits<int32_t>::max() / 2)
    throw Unsupported(
        fmt::format("{}: rows of {} elements are too long", tensor.name, shape.ne[0]));
  auto weight = std::make_shared<CpuWeight>();
  weight->codec = &codec;
  weight->cols = static_cast<size_t>(shape.ne[0]);
  weight->rows = static_cast<size_t>(shape.ne[1]);
  weight->row_bytes = codec.row_bytes(weight->cols);
  weight->data = reinterpret_cast<const uint8_t*>(tensor.data.data());
  weight->keep_alive = std::move(keep_alive);
  if (!exact_) weight->int_format = int_format_of(codec.id);
  weight->float_format = float_format_of(codec.id);
  if (weight->int_format >= 0) {
    const auto format = static_cast<size_t>(weight->int_format);
    weight->kernel_name = fmt::format("{}/{}", codec.name, kernels_.int_format_isa[format]);
    if (use != WeightUse::kTable) {
      const bool has_tiles = kernels_.table.packed[format].pack != nullptr;
      // Where tiles are not allowed, nothing is chosen.
      const KernelChoice choice = has_tiles && !repack_ ? KernelChoice{.repack = false}
                                                        : choose_kernels(*weight, has_tiles);
      weight->rows_per_piece = choice.rows_per_piece;
      if (has_tiles && choice.repack) repack(*weight, release);
    }
  } else if (weight->float_format >= 0) {
    const auto format = static_cast<size_t>(weight->float_format);
    weight->kernel_name = fmt::format("{}/{}", codec.name, kernels_.float_format_isa[format]);
  } else {
    weight->kernel_name = fmt::format("{}/decode+f32", codec.name);
  }
  return weight;
}

KernelChoice CpuBackend::choose_kernels(const CpuWeight& weight, bool can_repack) {
  if (!choices_ || weight.rows * weight.row_bytes < kSmallestTuned) return {};
  const KernelChoiceKey key = {kernels_.table.isa, pool_.n_threads(),
                               huge_pages_,        std::string(weight.codec->name),
                               weight.rows,        weight.cols};
  if (const auto known = choices_->find(key)) return *known;
  const profile::Scope timer("tune");
  const auto start = std::chrono::steady_clock::now();
  const auto choice = measure_kernels(kernels_.table, pool_, weight, can_repack, huge_pages_);
  if (!choice) return {};
  log_debug(fmt::format(
      "{} {} x {}: {}, pieces of {} rows; measured in {:.0f} ms", key.codec, key.rows, key.cols,
      can_repack ? (choice->repack ? "repacked" : "as in the file") : "one layout",
      choice->rows_per_piece,
      std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count()));
  choices_->add(key, *choice);
  return *choice;
}

std::unique_ptr<KvCache> CpuBackend::make_kv_cache(const KvShape& shape, KvType type) {
  check_argument(shape.capacity >= 1 && shape.n_kv_heads >= 1 && shape.head_dim >= 1,
                 "KV cache: capacity, heads and head size must be positive");
  try {
    return std::make_unique<CpuKvCache>(shape, type, huge_pages_);
  } catch (const std::bad_alloc&) {
    throw ResourceExhausted(fmt::format(
        "not enough memory for a KV cache of {} positions x {} heads x {}; use a smaller context "
        "or a smaller KV type",
        shape.capacity, shape.n_kv_heads, shape.head_dim));
  }
}

std::vector<std::byte> CpuBackend::read_kv(const KvCache& cache, int64_t begin, int64_t end) {
  const CpuKvCache& kv = cpu_kv_cache(cache);
  check_argument(0 <= begin && begin <= end && end <= kv.capacity(),
                 "read_kv: positions outside the cache");
  const std::lock_guard lock(mutex_);
  const size_t half = static_cast<size_t>(end - begin) * kv.row_bytes();
  std::vector<std::byte> out(2 * half);
  if (half == 0) return out;
  std::memcpy(out.data(), kv.k_row(static_cast<size_t>(begin)), half);
  std::memcpy(out.data() + half, kv.v_row(static_cast<size_t>(begin)), half);
  return out;
}

void CpuBackend::write_kv(KvCache& cache, int64_t begin, std::span<const std::byte> bytes) {
  CpuKvCache& kv = cpu_kv_cache(cache);
  const size_t n = bytes.size() / (2 * kv.row_bytes());
  check_argument(bytes.size() == n * 2 * kv.row_bytes() && begin >= 0 && begin <= kv.capacity() &&
                     static_cast<int64_t>(n) <= kv.capacity() - begin,
                 "write_kv: the bytes do not fit this cache");
  const std::lock_guard lock(mutex_);
  const size_t half = n * kv.row_bytes();
  if (half == 0) return;
  std::memcpy(kv.k_row(static_cast<size_t>(begin)), bytes.data(), half);
  std::memcpy(kv.v_row(static_cast<size_t>(begin)), bytes.data() + half, half);
}

void CpuBackend::embed(const Weight& table, std::span<const int32_t> ids, float scale, Mat y,
                       const Rotation* rotation) {
  const profile::Scope timer("embed");
  const CpuWeight& weight = cpu_weight(table);
  check_mat(y, static_cast<int64_t>(ids.size()), table.n_cols(), "embed: y");
  check_argument(!rotation || (rotation->width() == table.n_cols() && !rotation->grouped()),
                 "embed: the rotation has another width, or permutes");
  for (const int32_t id : ids) {
    if (id < 0 || static_cast<size_t>(id) >= weight.rows)
      throw InvalidArgument(
          fmt::format("token id {} is outside the vocabulary of {}", id, weight.rows));
  }
  SignedTransform transform = {};
  if (rotation)
    transform = {weight.cols, static_cast<size_t>(rotation->block()), rotation->factor(),
                 rotation->flips()};
  const std::lock_guard lock(mutex_);
  for_rows(y.rows, static_cast<double>(weight.cols), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      float* out = y.row(r);
      const auto id = static_cast<size_t>(ids[static_cast<size_t>(r)]);
      weight.decode_row(kernels_.table, id, out);
      if (rotation) kernels_.table.unrotate(&transform, out, out);
      if (scale != 1.0F) kernels_.table.scale(out, weight.cols, scale);
    }
  });
}

void CpuBackend::rms_norm(Mat x, const float* w, int64_t group, float eps, Mat y) {
  const profile::Scope timer("rms_norm");
  check_mat(x, x.rows, x.cols, "rms_norm: x");
  check_mat(y, x.rows, x.cols, "rms_norm: y");
  check_argument(w != nullptr && group >= 1 && x.cols % group == 0,
                 "rms_norm: the group does not divide the row");
  const std::lock_guard lock(mutex_);
  for_rows(x.rows, static_cast<double>(x.cols) * 0.6, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      for (int64_t c = 0; c < x.cols; c += group)
        kernels_.table.rms_norm(x.row(r) + c, w, static_cast<size_t>(group), eps, y.row(r) + c);
    }
  });
}

CpuBackend::ExpectedForms CpuBackend::expected_forms(Activation& activation) {
  ExpectedForms expected;
  const Mat y = activation.rows();
  for (Activation::Slot& slot : activation.slots()) {
    check_argument(!slot.valid, "forms of the rows that were here before are still there");
    if (!slot.expected || !slot.data) continue;
    auto& form = static_cast<DerivedRows&>(*slot.data);
    if (!form.fits(static_cast<size_t>(y.cols))) continue;
    reserve_form(form, y);
    expected.row_cost_ns += form.part_cost_ns() * static_cast<double>(form.n_parts());
    expected.forms.push_back(&form);
  }
  return expected;
}

void CpuBackend::mark_made(const ExpectedForms& expected, Activation& activation) {
  for (Activation::Slot& slot : activation.slots()) {
    for (const DerivedRows* form : expected.forms)
      slot.valid = slot.valid || slot.data.get() == form;
  }
}

void CpuBackend::rms_norm(Mat x, const float* w, float eps, Activation& activation) {
  const Mat y = activation.rows();
  check_mat(x, x.rows, x.cols, "rms_norm: x");
  check_mat(y, x.rows, x.cols, "rms_norm: y");
  check_argument(w != nullptr && x.cols >= 1, "rms_norm: no weight");
  if (x.rows == 0) return;
  const std::lock_guard lock(mutex_);
  make_rows(activation, static_cast<double>(x.cols) * 0.6, "rms_norm", "rms_norm+rotate+quantize",
            [&](int64_t r) {
              kernels_.table.rms_norm(x.row(r), w, static_cast<size_t>(x.cols), eps, y.row(r));
            });
}

void CpuBackend::rope(Mat x, int64_t n_heads, int64_t head_dim, int64_t first_position,
                      const Rope& rope) {
  const profile::Scope timer("rope");
  check_argument(n_heads >= 1 && head_dim >= 1 && first_position >= 0, "rope: negative size");
  check_mat(x, x.rows, n_heads * head_dim, "rope: x");
  const auto n_pairs = static_cast<int64_t>(rope.inverse_frequency.size());
  check_argument(2 * n_pairs <= head_dim, "rope: more rotated dimensions than the head has");
  if (n_pairs == 0 || x.rows == 0) return;
  const std::lock_guard lock(mutex_);
  const RopeTables::View tables = rope_tables_.get(rope, first_position, x.rows);
  const auto rotate =
      rope.half_split ? kernels_.table.rope_half_split : kernels_.table.rope_interleaved;
  for_rows(x.rows, static_cast<double>(n_heads * n_pairs), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const float* cos = tables.cos + static_cast<size_t>(r) * tables.n_pairs;
      const float* sin = tables.sin + static_cast<size_t>(r) * tables.n_pairs;
      for (int64_t h = 0; h < n_heads; ++h)
        rotate(x.row(r) + h * head_dim, cos, sin, tables.n_pairs);
    }
  });
}

void CpuBackend::gated_unit(GatedUnit unit, Mat gate, Mat up, Mat out) {
  const profile::Scope timer("gated_unit");
  check_mat(gate, gate.rows, gate.cols, "gated_unit: gate");
  check_mat(up, gate.rows, gate.cols, "gated_unit: up");
  check_mat(out, gate.rows, gate.cols, "gated_unit: out");
  const auto kernel = unit == GatedUnit::kSilu       ? kernels_.table.silu_gate
                      : unit == GatedUnit::kGeluTanh ? kernels_.table.gelu_gate
                                                     : kernels_.table.sigmoid_gate;
  const std::lock_guard lock(mutex_);
  for_rows(gate.rows, static_cast<double>(gate.cols) * 2, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r)
      kernel(gate.row(r), up.row(r), static_cast<size_t>(gate.cols), out.row(r));
  });
}

void CpuBackend::add(Mat x, Mat y) {
  const profile::Scope timer("add");
  check_mat(x, x.rows, x.cols, "add: x");
  check_mat(y, x.rows, x.cols, "add: y");
  const std::lock_guard lock(mutex_);
  for_rows(x.rows, static_cast<double>(x.cols) * 0.3, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r)
      kernels_.table.add(x.row(r), y.row(r), static_cast<size_t>(x.cols));
  });
}

void CpuBackend::softcap(Mat x, float cap) {
  const profile::Scope timer("softcap");
  check_mat(x, x.rows, x.cols, "softcap: x");
  check_argument(cap > 0, "softcap: the cap must be positive");
  const std::lock_guard lock(mutex_);
  // One row may be a whole vocabulary: split columns, not rows.
  constexpr int64_t kColumns = 4096;
  const int64_t pieces = (x.cols + kColumns - 1) / kColumns;
  for_rows(x.rows * pieces, 2.0 * kColumns, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t c = i % pieces * kColumns;
      kernels_.table.softcap(x.row(i / pieces) + c,
                             static_cast<size_t>(std::min(kColumns, x.cols - c)), cap);
    }
  });
}

}  // namespace ts
