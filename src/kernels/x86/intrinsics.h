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
// Single headers: the emulation's complete AVX-512 header takes minutes to compile.
#include <immintrin.h>
#include <simde/x86/avx512/add.h>
#include <simde/x86/avx512/cast.h>
#include <simde/x86/avx512/dpbusd.h>
#include <simde/x86/avx512/loadu.h>
#include <simde/x86/avx512/mul.h>
#include <simde/x86/avx512/permutexvar.h>
#include <simde/x86/avx512/set.h>
#include <simde/x86/avx512/set1.h>
#include <simde/x86/avx512/setzero.h>
#include <simde/x86/avx512/shuffle.h>
#include <simde/x86/avx512/storeu.h>
#include <simde/x86/avx512/sub.h>
#include <simde/x86/avx512/unpackhi.h>
#include <simde/x86/avx512/unpacklo.h>
#include <simde/x86/avx512/xor.h>
#pragma GCC diagnostic pop
#else
#include <immintrin.h>
#endif
