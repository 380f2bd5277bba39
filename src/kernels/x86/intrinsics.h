/// The intrinsics of the x86 kernels: the compiler's own, or, in tests on machines without the
/// instruction set, an emulation in portable code that computes the same results.
#pragma once

#include <cstddef>
#include <cstdint>

#if defined(TS_EMULATE_ISA)
#define SIMDE_ENABLE_NATIVE_ALIASES
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wall"
#pragma GCC diagnostic ignored "-Wextra"
#pragma GCC diagnostic ignored "-Wpedantic"
#pragma GCC diagnostic ignored "-Wconversion"
#pragma GCC diagnostic ignored "-Wshadow"
#include <simde/x86/avx2.h>
#include <simde/x86/avx512.h>
#include <simde/x86/f16c.h>
#pragma GCC diagnostic pop
#else
#include <immintrin.h>
#endif
