#include "backend/cpu/checks.h"

#include <fmt/format.h>

#include <tensorsharp/error.hpp>

namespace ts {

void check_argument(bool ok, const char* message) {
  if (!ok) throw InvalidArgument(message);
}

void check_mat(const Mat& mat, int64_t rows, int64_t cols, const char* what) {
  if (mat.rows != rows || mat.cols != cols)
    throw InvalidArgument(
        fmt::format("{} is {} x {}, expected {} x {}", what, mat.rows, mat.cols, rows, cols));
  if (rows == 0 || cols == 0) return;
  if (!mat.buffer || !mat.buffer->host() || rows < 0 || cols < 0 || (rows > 1 && mat.stride < cols))
    throw InvalidArgument(fmt::format("{} is not a valid view", what));
  const uint64_t last = mat.offset + static_cast<uint64_t>((rows - 1) * mat.stride + cols);
  if (last > mat.buffer->n_floats())
    throw InvalidArgument(
        fmt::format("{} ends at element {} of a buffer of {}", what, last, mat.buffer->n_floats()));
}

const CpuWeight& cpu_weight(const Weight& weight) {
  const auto* own = dynamic_cast<const CpuWeight*>(&weight);
  if (!own) throw InvalidArgument("the weight was prepared for another backend");
  return *own;
}

const CpuKvCache& cpu_kv_cache(const KvCache& cache) {
  const auto* own = dynamic_cast<const CpuKvCache*>(&cache);
  if (!own) throw InvalidArgument("the KV cache was made by another backend");
  return *own;
}

CpuKvCache& cpu_kv_cache(KvCache& cache) {
  return const_cast<CpuKvCache&>(cpu_kv_cache(static_cast<const KvCache&>(cache)));
}

const CpuRecurrentState& cpu_recurrent_state(const RecurrentState& state) {
  const auto* own = dynamic_cast<const CpuRecurrentState*>(&state);
  if (!own) throw InvalidArgument("the recurrent state was made by another backend");
  return *own;
}

CpuRecurrentState& cpu_recurrent_state(RecurrentState& state) {
  return const_cast<CpuRecurrentState&>(
      cpu_recurrent_state(static_cast<const RecurrentState&>(state)));
}

}  // namespace ts
