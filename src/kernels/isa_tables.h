/// One function per instruction set: lays its kernels over a table. Each is defined only in builds
/// that have the set (TS_HAVE_AVX2, ...).
#pragma once

#include "kernels/kernel_table.h"

namespace ts {

void overlay_avx2(KernelTable* table);
void overlay_avx_vnni(KernelTable* table);
void overlay_avx512_vnni(KernelTable* table);
void overlay_neon_dotprod(KernelTable* table);
void overlay_i8mm(KernelTable* table);

}  // namespace ts
