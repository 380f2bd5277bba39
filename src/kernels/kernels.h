/// Choosing the kernels of this process.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/cpu_features.h"
#include "codec/codec.h"
#include "kernels/kernel_table.h"

namespace ts {

/// The kernels of one instruction set: the reference table with every function that a higher set
/// has laid over it.
struct Kernels {
  KernelTable table;
  /// Instruction set whose unpacker or direct product serves a format, e.g. "avx2" or "ref".
  const char* int_format_isa[kIntFormats];
  const char* float_format_isa[kFloatFormats];
};

/// Every name `--isa` and TENSORSHARP_ISA accept, "auto" first.
std::vector<std::string_view> isa_names();
/// The sets this program was built with and this CPU can run, "ref" first, best last.
std::vector<std::string_view> available_isas(const CpuFeatures& features);

/// Tables for `isa`: a name of isa_names(); empty = the environment variable TENSORSHARP_ISA, else
/// "auto" = the best available. InvalidArgument (listing the names) when unknown, Unsupported when
/// this CPU or build lacks it.
const Kernels& select_kernels(std::string_view isa);
const Kernels& select_kernels(std::string_view isa, const CpuFeatures& features);

/// The kernel format of a codec; -1 when it has no kernels of that kind.
int int_format_of(TypeId type) noexcept;
int float_format_of(TypeId type) noexcept;

}  // namespace ts
