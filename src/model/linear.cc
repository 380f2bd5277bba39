#include "model/linear.h"

#include <array>
#include <cstddef>
#include <span>

#include <tensorsharp/error.hpp>

namespace ts {

void run_linears(Backend& backend, std::initializer_list<LinearCall> calls, Activation& x) {
  std::array<LinearJob, 8> jobs;
  if (calls.size() > jobs.size()) throw InternalError("too many linears in one call");
  size_t count = 0;
  for (const LinearCall& call : calls) {
    jobs[count++] = {call.linear->weight.get(), call.y,
                     call.linear->bias.empty() ? nullptr : call.linear->bias.data(),
                     call.linear->input.get(), call.linear->output.get()};
  }
  backend.linear(std::span(jobs).first(count), x);
}

void run_embedding(Backend& backend, const Embedding& embedding, std::span<const int32_t> ids,
                   float scale, Mat y) {
  backend.embed(*embedding.table, ids, scale, y, embedding.rotation.get());
}

}  // namespace ts
