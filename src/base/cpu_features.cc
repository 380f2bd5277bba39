#include "base/cpu_features.h"

#include <cstdint>
#include <fstream>
#include <string>
#include <string_view>

#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__)
#include <sys/auxv.h>
#endif

namespace ts {
namespace {

#if defined(__x86_64__)

/// Register sets that the operating system saves (XCR0); 0 without OSXSAVE.
uint64_t saved_state(uint32_t leaf1_ecx) {
  constexpr uint32_t kOsxsave = 1u << 27;
  if (!(leaf1_ecx & kOsxsave)) return 0;
  uint32_t low = 0, high = 0;
  // xgetbv, as an instruction because its intrinsic would need a -m flag for this file.
  asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return static_cast<uint64_t>(high) << 32 | low;
}

CpuFeatures detect() {
  CpuFeatures f;
  uint32_t a = 0, b = 0, c = 0, d = 0;
  if (!__get_cpuid(1, &a, &b, &c, &d)) return f;
  const uint64_t saved = saved_state(c);
  const bool ymm = (saved & 0x6) == 0x6;           // xmm and ymm
  const bool zmm = ymm && (saved & 0xE0) == 0xE0;  // opmask, zmm low and high
  const auto bit = [](uint32_t word, int n) { return (word >> n & 1u) != 0; };
  f.sse4_1 = bit(c, 19);
  f.avx = ymm && bit(c, 28);
  f.fma = f.avx && bit(c, 12);
  f.f16c = f.avx && bit(c, 29);
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d)) {
    f.avx2 = f.avx && bit(b, 5);
    f.bmi2 = bit(b, 8);
    f.avx512f = zmm && bit(b, 16);
    f.avx512dq = f.avx512f && bit(b, 17);
    f.avx512bw = f.avx512f && bit(b, 30);
    f.avx512vl = f.avx512f && bit(b, 31);
    f.avx512_vbmi = f.avx512f && bit(c, 1);
    f.avx512_vnni = f.avx512f && bit(c, 11);
    if (a >= 1 && __get_cpuid_count(7, 1, &a, &b, &c, &d)) f.avx_vnni = f.avx2 && bit(a, 4);
  }
  return f;
}

#elif defined(__aarch64__)

CpuFeatures detect() {
  CpuFeatures f;
  const unsigned long caps = getauxval(AT_HWCAP);
  const unsigned long caps2 = getauxval(AT_HWCAP2);
  f.neon = (caps >> 1 & 1) != 0;      // HWCAP_ASIMD
  f.fp16 = (caps >> 10 & 1) != 0;     // HWCAP_ASIMDHP
  f.dotprod = (caps >> 20 & 1) != 0;  // HWCAP_ASIMDDP
  f.sve = (caps >> 22 & 1) != 0;      // HWCAP_SVE
  f.i8mm = (caps2 >> 13 & 1) != 0;    // HWCAP2_I8MM
  return f;
}

#else

CpuFeatures detect() {
  return {};
}

#endif

}  // namespace

const CpuFeatures& cpu_features() {
  static const CpuFeatures features = detect();
  return features;
}

std::vector<std::string_view> feature_names(const CpuFeatures& f) {
  std::vector<std::string_view> names;
  const auto add = [&names](bool has, std::string_view name) {
    if (has) names.push_back(name);
  };
  add(f.sse4_1, "sse4_1");
  add(f.avx, "avx");
  add(f.avx2, "avx2");
  add(f.fma, "fma");
  add(f.f16c, "f16c");
  add(f.bmi2, "bmi2");
  add(f.avx_vnni, "avx_vnni");
  add(f.avx512f, "avx512f");
  add(f.avx512bw, "avx512bw");
  add(f.avx512dq, "avx512dq");
  add(f.avx512vl, "avx512vl");
  add(f.avx512_vnni, "avx512_vnni");
  add(f.avx512_vbmi, "avx512_vbmi");
  add(f.neon, "neon");
  add(f.dotprod, "dotprod");
  add(f.i8mm, "i8mm");
  add(f.fp16, "fp16");
  add(f.sve, "sve");
  return names;
}

std::string cpu_model_name() {
  std::ifstream in("/proc/cpuinfo");
  std::string implementer, part;
  for (std::string line; std::getline(in, line);) {
    const auto value = [&line](std::string_view name) -> std::string {
      if (line.rfind(name, 0) != 0) return {};
      const size_t colon = line.find(':');
      const size_t begin =
          colon == std::string::npos ? colon : line.find_first_not_of(" \t", colon + 1);
      return begin == std::string::npos ? std::string() : line.substr(begin);
    };
    if (const std::string name = value("model name"); !name.empty()) return name;
    if (implementer.empty()) implementer = value("CPU implementer");
    if (part.empty()) part = value("CPU part");
  }
  // 64-bit ARM has numbers for names.
  if (!part.empty()) return "ARM implementer " + implementer + " part " + part;
  return "unknown";
}

}  // namespace ts
