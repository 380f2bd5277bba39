#include <algorithm>
#include <array>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <tensorsharp/error.hpp>

#include "kernels/isa_tables.h"
#include "kernels/kernels.h"
#include "kernels/ref/ref_kernels.h"

namespace ts {
namespace {

struct IsaRow {
  std::string_view name;
  bool (*runs)(const CpuFeatures&);
  void (*overlay)(KernelTable*);  ///< null = not in this build
};

bool runs_ref(const CpuFeatures&) {
  return true;
}
bool runs_avx2(const CpuFeatures& f) {
  return f.avx2 && f.f16c;
}
bool runs_avx_vnni(const CpuFeatures& f) {
  return runs_avx2(f) && f.avx_vnni;
}
bool runs_avx512_vnni(const CpuFeatures& f) {
  return runs_avx2(f) && f.avx512f && f.avx512bw && f.avx512vl && f.avx512dq && f.avx512_vnni;
}
bool runs_neon_dotprod(const CpuFeatures& f) {
  return f.neon && f.dotprod;
}
bool runs_i8mm(const CpuFeatures& f) {
  return runs_neon_dotprod(f) && f.i8mm;
}

void overlay_ref(KernelTable* table) {
  ref::set_unpackers(*table);
  ref::set_products(*table);
  ref::set_elementwise(*table);
  ref::set_delta_rule(*table);
  ref::set_hadamard(*table);
}

/// From the lowest to the highest; a table takes its own row and every lower one that the CPU runs.
constexpr IsaRow kIsas[] = {
    {"ref", runs_ref, overlay_ref},
#if defined(TS_HAVE_AVX2)
    {"avx2", runs_avx2, overlay_avx2},
#else
    {"avx2", runs_avx2, nullptr},
#endif
#if defined(TS_HAVE_AVX_VNNI)
    {"avx_vnni", runs_avx_vnni, overlay_avx_vnni},
#else
    {"avx_vnni", runs_avx_vnni, nullptr},
#endif
#if defined(TS_HAVE_AVX512)
    {"avx512_vnni", runs_avx512_vnni, overlay_avx512_vnni},
#else
    {"avx512_vnni", runs_avx512_vnni, nullptr},
#endif
#if defined(TS_HAVE_NEON_DOTPROD)
    {"neon_dotprod", runs_neon_dotprod, overlay_neon_dotprod},
#else
    {"neon_dotprod", runs_neon_dotprod, nullptr},
#endif
#if defined(TS_HAVE_I8MM)
    {"i8mm", runs_i8mm, overlay_i8mm},
#else
    {"i8mm", runs_i8mm, nullptr},
#endif
};

std::unique_ptr<const Kernels> make_kernels(const IsaRow& top, const CpuFeatures& features) {
  auto kernels = std::make_unique<Kernels>();
  for (const IsaRow& isa : kIsas) {
    if (isa.overlay && isa.runs(features)) {
      const KernelTable before = kernels->table;
      isa.overlay(&kernels->table);
      const KernelTable& now = kernels->table;
      kernels->table.isa = isa.name.data();
      for (size_t i = 0; i < kIntFormats; ++i) {
        if (now.unpack[i] != before.unpack[i] || now.int_gemv[i] != before.int_gemv[i])
          kernels->int_format_isa[i] = isa.name.data();
      }
      for (size_t i = 0; i < kFloatFormats; ++i) {
        if (now.float_gemv[i] != before.float_gemv[i])
          kernels->float_format_isa[i] = isa.name.data();
      }
    }
    if (isa.name == top.name) break;
  }
  return kernels;
}

struct FormatRow {
  TypeId type;
  int format;
};
constexpr FormatRow kIntTypes[] = {
    {TypeId::kQ4_0, kIntQ4_0},     {TypeId::kQ4_1, kIntQ4_1},   {TypeId::kQ5_0, kIntQ5_0},
    {TypeId::kQ5_1, kIntQ5_1},     {TypeId::kQ8_0, kIntQ8_0},   {TypeId::kQ2_K, kIntQ2_K},
    {TypeId::kQ3_K, kIntQ3_K},     {TypeId::kQ4_K, kIntQ4_K},   {TypeId::kQ5_K, kIntQ5_K},
    {TypeId::kQ6_K, kIntQ6_K},     {TypeId::kTQ1_0, kIntTQ1_0}, {TypeId::kTQ2_0, kIntTQ2_0},
    {TypeId::kQ1_0, kIntQ1_0},     {TypeId::kQ2_0, kIntQ2_0},   {TypeId::kPQ2_0, kIntPQ2_0},
    {TypeId::kPTQ1_0, kIntPTQ1_0},
};
static_assert(std::size(kIntTypes) == kIntFormats);
constexpr FormatRow kFloatTypes[] = {
    {TypeId::kF32, kFloatF32}, {TypeId::kF16, kFloatF16}, {TypeId::kBF16, kFloatBF16}};

}  // namespace

std::vector<std::string_view> isa_names() {
  std::vector<std::string_view> names = {"auto"};
  for (const IsaRow& isa : kIsas)
    names.push_back(isa.name);
  return names;
}

std::vector<std::string_view> available_isas(const CpuFeatures& features) {
  std::vector<std::string_view> names;
  for (const IsaRow& isa : kIsas) {
    if (isa.overlay && isa.runs(features)) names.push_back(isa.name);
  }
  return names;
}

const Kernels& select_kernels(std::string_view isa, const CpuFeatures& features) {
  std::string_view source = "--isa";
  if (isa.empty()) {
    const char* variable = std::getenv("TENSORSHARP_ISA");
    isa = variable && *variable ? variable : "auto";
    source = "TENSORSHARP_ISA";
  }
  const std::vector<std::string_view> available = available_isas(features);
  const IsaRow* row = nullptr;
  for (const IsaRow& candidate : kIsas) {
    if (candidate.name == (isa == "auto" ? available.back() : isa)) row = &candidate;
  }
  if (!row)
    throw InvalidArgument(fmt::format("{}: \"{}\" is not an instruction set; use one of {}", source,
                                      isa, fmt::join(isa_names(), ", ")));
  if (!row->overlay || !row->runs(features))
    throw Unsupported(fmt::format("{}: {} is not available ({}); available here: {}", source, isa,
                                  row->overlay ? "this CPU lacks it" : "not part of this build",
                                  fmt::join(available, ", ")));
  static std::mutex mutex;
  static std::map<std::string_view, std::unique_ptr<const Kernels>> made;
  const std::lock_guard lock(mutex);
  auto& slot = made[row->name];
  if (!slot) slot = make_kernels(*row, features);
  return *slot;
}

const Kernels& select_kernels(std::string_view isa) {
  return select_kernels(isa, cpu_features());
}

int int_format_of(TypeId type) noexcept {
  for (const FormatRow& row : kIntTypes) {
    if (row.type == type) return row.format;
  }
  return -1;
}

int float_format_of(TypeId type) noexcept {
  for (const FormatRow& row : kFloatTypes) {
    if (row.type == type) return row.format;
  }
  return -1;
}

}  // namespace ts
