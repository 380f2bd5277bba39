/// Argument checks shared by the CPU backend's operations: cheap, always on.
#pragma once

#include <cstdint>

#include "backend/cpu/cpu_weight.h"
#include "backend/cpu/kv_store.h"
#include "backend/cpu/recurrent_store.h"

namespace ts {

/// InvalidArgument with `message` unless `ok`.
void check_argument(bool ok, const char* message);
/// InvalidArgument naming `what` unless the view is rows x cols and lies inside its buffer.
void check_mat(const Mat& mat, int64_t rows, int64_t cols, const char* what);
/// The weight or cache of this backend; InvalidArgument when it was made by another one.
const CpuWeight& cpu_weight(const Weight& weight);
const CpuKvCache& cpu_kv_cache(const KvCache& cache);
CpuKvCache& cpu_kv_cache(KvCache& cache);
const CpuRecurrentState& cpu_recurrent_state(const RecurrentState& state);
CpuRecurrentState& cpu_recurrent_state(RecurrentState& state);

}  // namespace ts
