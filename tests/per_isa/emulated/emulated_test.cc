// Instruction sets this machine may lack: the same kernel sources, compiled against an emulation of
// their intrinsics, compared with the reference bit for bit.
#include <gtest/gtest.h>

#include "kernels/isa_tables.h"
#include "kernels/kernels.h"
#include "per_isa/kernels/compare_kernels.h"

namespace ts {

// The emulated copies; renamed so that they do not meet the real ones.
void emulated_overlay_avx_vnni(KernelTable* table);
void emulated_overlay_avx512_vnni(KernelTable* table);

namespace {

struct Case {
  const char* name;
  void (*overlay)(KernelTable*);
};

class Emulated : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    if (!cpu_features().avx2 || !cpu_features().f16c)
      GTEST_SKIP() << "the emulation itself uses AVX2";
  }
  /// The reference table with only the overlay under test.
  KernelTable table() const {
    KernelTable t = select_kernels("ref").table;
    GetParam().overlay(&t);
    // Tiles are packed by the instruction set below.
    const KernelTable& avx2 = select_kernels("avx2").table;
    for (size_t f = 0; f < kIntFormats; ++f) {
      if (!t.packed[f].gemv || t.packed[f].pack) continue;
      t.packed[f].pack = avx2.packed[f].pack;
      t.packed[f].group_bytes = avx2.packed[f].group_bytes;
    }
    return t;
  }
  const KernelTable& reference() const { return select_kernels("ref").table; }
};

TEST_P(Emulated, OverlaysSomething) {
  const KernelTable t = table();
  for (size_t f = 0; f < kIntFormats; ++f)
    EXPECT_NE(t.int_gemv[f], nullptr);
  per_isa::expect_complete(t, GetParam().name);
}
TEST_P(Emulated, Products) {
  per_isa::compare_products(table(), reference(), GetParam().name);
}
TEST_P(Emulated, PackedProducts) {
  per_isa::compare_packed(table(), reference(), GetParam().name);
}
TEST_P(Emulated, Extremes) {
  per_isa::compare_extremes(table(), reference(), GetParam().name);
}

TEST_P(Emulated, Transforms) {
  per_isa::compare_transforms(table(), reference(), GetParam().name);
}

INSTANTIATE_TEST_SUITE_P(Isa, Emulated,
                         testing::Values(Case{"avx_vnni", emulated_overlay_avx_vnni},
                                         Case{"avx512_vnni", emulated_overlay_avx512_vnni}),
                         [](const auto& isa) { return std::string(isa.param.name); });

}  // namespace
}  // namespace ts
