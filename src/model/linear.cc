#include "model/linear.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <span>

#include <tensorsharp/error.hpp>

namespace ts {
namespace {

constexpr size_t kMaxJobs = 8;

/// y += the product of plane `plane` (from 0: the first further one) of every Linear that has it.
/// Returns whether any has.
bool add_plane(Backend& backend, std::initializer_list<LinearCall> calls, size_t plane,
               Activation& x, const Mat& scratch) {
  std::array<LinearJob, kMaxJobs> jobs;
  std::array<Mat, kMaxJobs> sums;
  size_t count = 0;
  int64_t used = 0;
  const int64_t room = scratch.rows * scratch.cols;
  for (const LinearCall& call : calls) {
    if (call.linear->planes.size() <= plane) continue;
    const int64_t n_rows = call.y.rows, n_cols = call.y.cols;
    if (n_rows * n_cols > room - used) throw InternalError("no room for the products of a plane");
    const Mat product{scratch.buffer, scratch.offset + static_cast<size_t>(used), n_rows, n_cols,
                      n_cols};
    used += n_rows * n_cols;
    sums[count] = call.y;
    jobs[count++] = {call.linear->planes[plane].get(), product, nullptr, call.linear->input.get(),
                     call.linear->output.get()};
  }
  if (count == 0) return false;
  backend.linear(std::span(jobs).first(count), x);
  for (size_t i = 0; i < count; ++i)
    backend.add(sums[i], jobs[i].y);
  return true;
}

}  // namespace

void run_linears(Backend& backend, std::initializer_list<LinearCall> calls, Activation& x,
                 Mat scratch) {
  std::array<LinearJob, kMaxJobs> jobs;
  if (calls.size() > jobs.size()) throw InternalError("too many linears in one call");
  size_t count = 0;
  for (const LinearCall& call : calls) {
    jobs[count++] = {call.linear->weight.get(), call.y,
                     call.linear->bias.empty() ? nullptr : call.linear->bias.data(),
                     call.linear->input.get(), call.linear->output.get()};
  }
  backend.linear(std::span(jobs).first(count), x);
  for (size_t plane = 0; add_plane(backend, calls, plane, x, scratch);)
    ++plane;
}

void run_embedding(Backend& backend, const Embedding& embedding, std::span<const int32_t> ids,
                   float scale, Mat y) {
  backend.embed(*embedding.table, ids, scale, y, embedding.rotation.get());
}

}  // namespace ts
