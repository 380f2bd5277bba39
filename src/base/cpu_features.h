/// What the CPU and the operating system let this process execute.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace ts {

/// A flag is set only when the CPU has the feature and the operating system saves its registers.
struct CpuFeatures {
  // x86-64
  bool sse4_1 = false, avx = false, avx2 = false, fma = false, f16c = false, bmi2 = false;
  bool avx_vnni = false;
  bool avx512f = false, avx512bw = false, avx512dq = false, avx512vl = false, avx512_vnni = false,
       avx512_vbmi = false;
  // aarch64
  bool neon = false, dotprod = false, i8mm = false, fp16 = false, sve = false;
};

/// Of the running CPU; read once.
const CpuFeatures& cpu_features();
/// Names of the features that are set, e.g. {"avx2", "fma"}.
std::vector<std::string_view> feature_names(const CpuFeatures& features);
/// Marketing name of the CPU, e.g. "AMD EPYC"; "unknown" when it cannot be read.
std::string cpu_model_name();

}  // namespace ts
