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
// clang-format off: others need it without including it.
#include <simde/x86/avx512/setzero.h>
// clang-format on
#include <simde/x86/avx512/add.h>
#include <simde/x86/avx512/and.h>
#include <simde/x86/avx512/broadcast.h>
#include <simde/x86/avx512/cast.h>
#include <simde/x86/avx512/dpbusd.h>
#include <simde/x86/avx512/extract.h>
#include <simde/x86/avx512/insert.h>
#include <simde/x86/avx512/loadu.h>
#include <simde/x86/avx512/mul.h>
#include <simde/x86/avx512/mullo.h>
#include <simde/x86/avx512/packus.h>
#include <simde/x86/avx512/permutexvar.h>
#include <simde/x86/avx512/set.h>
#include <simde/x86/avx512/set1.h>
#include <simde/x86/avx512/shuffle.h>
#include <simde/x86/avx512/srli.h>
#include <simde/x86/avx512/storeu.h>
#include <simde/x86/avx512/sub.h>
#include <simde/x86/avx512/unpackhi.h>
#include <simde/x86/avx512/unpacklo.h>
#include <simde/x86/avx512/xor.h>
#pragma GCC diagnostic pop

// What the emulation lacks, in halves.
inline __m512i ts_emulated_mulhi(__m512i a, __m512i b) {
  const __m256i low = _mm256_mulhi_epu16(_mm512_castsi512_si256(a), _mm512_castsi512_si256(b));
  const __m256i high =
      _mm256_mulhi_epu16(_mm512_extracti64x4_epi64(a, 1), _mm512_extracti64x4_epi64(b, 1));
  return _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
}
inline __m512 ts_emulated_floats(__m256 low, __m256 high) {
  return _mm512_insertf32x8(_mm512_castps256_ps512(low), high, 1);
}
inline __m512 ts_emulated_from_int(__m512i a) {
  return ts_emulated_floats(_mm256_cvtepi32_ps(_mm512_castsi512_si256(a)),
                            _mm256_cvtepi32_ps(_mm512_extracti64x4_epi64(a, 1)));
}
inline __m512 ts_emulated_from_half(__m256i a) {
  return ts_emulated_floats(_mm256_cvtph_ps(_mm256_castsi256_si128(a)),
                            _mm256_cvtph_ps(_mm256_extracti128_si256(a, 1)));
}
inline __m512i ts_emulated_srai(__m512i a, int n) {
  return _mm512_inserti64x4(_mm512_castsi256_si512(_mm256_srai_epi32(_mm512_castsi512_si256(a), n)),
                            _mm256_srai_epi32(_mm512_extracti64x4_epi64(a, 1), n), 1);
}
#define _mm512_mulhi_epu16 ts_emulated_mulhi
#define _mm512_srai_epi32 ts_emulated_srai
#define _mm512_cvtepi32_ps ts_emulated_from_int
#define _mm512_cvtph_ps ts_emulated_from_half
#else
#include <immintrin.h>
#endif
