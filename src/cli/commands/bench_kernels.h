/// `bench --kernels`: products and transforms alone, on every instruction set of this CPU.
#pragma once

#include <optional>
#include <string>

#include "cli/console.h"

namespace ts::cli {

struct KernelBenchOptions {
  std::optional<std::string> type;  ///< none = all types
  std::string isa;                  ///< empty or auto = all that this CPU can run
  int threads = 0;                  ///< 0 = the default number; one thread is measured too
};

/// Measures and prints. Returns the exit status. InvalidArgument: no such type or instruction set.
int bench_kernels(Console& console, const KernelBenchOptions& options);

}  // namespace ts::cli
