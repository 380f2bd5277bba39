// Products of tiles of formats with groups of 16 and 32 weights: Q4_0, Q4_1, Q5_0, Q8_0, Q4_K,
// Q6_K.
//
// Idea: as for ternary tiles, lane = row: 16 rows side by side, an activation enters as one
// broadcast of four int8, and no lane is ever added to another. Rows multiplied one at a time have
// to transpose and add eight groups' sums, and a row of 18 groups (576 columns) wastes most of its
// third eight; here a group of any number costs the same. The tiles hold the 32-bit words of the
// blocks as they are, word after word for 16 rows: byte (row, lane) of word i has the code of
// column 4 i + lane in its low and, in the four-bit formats, that of a later column in its high
// nibble. As in the file but for the order (Q4_K: scales as bytes, 4.625 bits per weight for 4.5).
// Exact: bit for bit the definition in kernel_table.h. int16 sums hold eight steps of codes to 15
// (30480), four to 31, two to 63; signed bytes are multiplied as |w| * sign(a, w), one step
// (32512) at a time.
// Preconditions: those of PackedKernels in kernel_table.h; any alignment.
// Measured (AMD EPYC Zen 3, g++ 12, 2026-11-30, busy machine, `kernel_cycles_bench avx2 5120
// memory`), cycles per 32 weights in cache: Q4_1 one row 2.2, two 3.2, four 6.3;
// Q8_0 2.6, 4.2, 8.8; twice that beside a busy thread on the same core. From memory one row takes
// the time of reading.
#include <immintrin.h>

#include "kernels/x86/avx2/avx2_kernels.h"

namespace ts::avx2 {
namespace {

#include "kernels/x86/formats.inc"
// clang-format off
#include "kernels/x86/packed_layouts.inc"
#include "kernels/x86/avx2/tiles.inc"
#include "kernels/x86/avx2/columns.inc"
#include "kernels/x86/avx2/small_group_tiles.inc"
// clang-format on

template <class F>
constexpr size_t kGroupOf = kInfo<F>.group;
template <class F>
constexpr bool kMinimums = kInfo<F>.min_group != 0;

/// What an activation row offers per group of the format.
template <class F>
inline const float* act_scales(const ActRow& act) {
  return kGroupOf<F> == 16 ? act.scale16 : act.scale;
}
template <class F>
inline const int32_t* act_sums(const ActRow& act) {
  return kGroupOf<F> == 16 ? act.isum16 : act.isum;
}

inline __m256i widened(__m256i words) {
  return _mm256_madd_epi16(words, _mm256_set1_epi16(1));
}

/// Signed codes times activations, as 32-bit sums.
inline __m256i signed_products(__m256i codes, __m256i q) {
  return widened(_mm256_maddubs_epi16(_mm256_abs_epi8(codes), _mm256_sign_epi8(q, codes)));
}

/// Sums of N activation rows, 8 + 8 weight rows each.
template <int N>
struct ColumnSums {
  __m256i a[N], b[N];
  ColumnSums() {
    for (int n = 0; n < N; ++n)
      a[n] = b[n] = _mm256_setzero_si256();
  }
};

/// Adds steps [S, End) of a chunk to 16-bit sums.
template <class F, size_t S, size_t End, int N>
inline void add_steps(const uint8_t* chunk, const int8_t* const* q, ColumnSums<N>* sums) {
  if constexpr (S < End) {
    const __m256i wa = F::template codes<S>(chunk, 0), wb = F::template codes<S>(chunk, 32);
    for (int n = 0; n < N; ++n) {
      const __m256i x = four(q[n] + 4 * S);
      sums->a[n] = accumulate(sums->a[n], wa, x);
      sums->b[n] = accumulate(sums->b[n], wb, x);
    }
    add_steps<F, S + 1, End>(chunk, q, sums);
  }
}

/// 32-bit sums of steps [S, End), one group.
template <class F, size_t S, size_t End, int N>
inline void add_group_sums(const uint8_t* chunk, const int8_t* const* q, ColumnSums<N>* sums) {
  if constexpr (S < End) {
    constexpr size_t kSteps = F::kWiden == 0 ? 1 : F::kWiden < End - S ? F::kWiden : End - S;
    if constexpr (F::kWiden == 0) {
      const __m256i wa = F::template codes<S>(chunk, 0), wb = F::template codes<S>(chunk, 32);
      for (int n = 0; n < N; ++n) {
        const __m256i x = four(q[n] + 4 * S);
        sums->a[n] = _mm256_add_epi32(sums->a[n], signed_products(wa, x));
        sums->b[n] = _mm256_add_epi32(sums->b[n], signed_products(wb, x));
      }
    } else {
      ColumnSums<N> part;
      add_steps<F, S, S + kSteps>(chunk, q, &part);
      for (int n = 0; n < N; ++n) {
        sums->a[n] = _mm256_add_epi32(sums->a[n], widened(part.a[n]));
        sums->b[n] = _mm256_add_epi32(sums->b[n], widened(part.b[n]));
      }
    }
    add_group_sums<F, S + kSteps, End>(chunk, q, sums);
  }
}

/// acc += float(sums - offset * isum) * (scale * a_scale), 16 rows.
template <class F>
inline void add_products(float* acc, Sums sums, Floats scale, float a_scale, int32_t isum) {
  const __m256 activation = _mm256_set1_ps(a_scale);
  const auto add = [&](float* at, __m256i sum, __m256 s) {
    if constexpr (kInfo<F>.offset != 0)
      sum = _mm256_sub_epi32(sum, _mm256_set1_epi32(kInfo<F>.offset * isum));
    const __m256 value = _mm256_mul_ps(_mm256_cvtepi32_ps(sum), _mm256_mul_ps(s, activation));
    _mm256_storeu_ps(at, _mm256_add_ps(_mm256_loadu_ps(at), value));
  };
  add(acc, sums.a, scale.a);
  add(acc + 8, sums.b, scale.b);
}

inline void add_minimums(float* low, Floats minimum, float fsum) {
  const __m256 f = _mm256_set1_ps(fsum);
  _mm256_storeu_ps(low, _mm256_add_ps(_mm256_loadu_ps(low), _mm256_mul_ps(minimum.a, f)));
  _mm256_storeu_ps(low + 8, _mm256_add_ps(_mm256_loadu_ps(low + 8), _mm256_mul_ps(minimum.b, f)));
}

/// tree(acc) or tree(acc) + tree(low).
template <class F>
inline void store_sums(const float* acc, const float* low, float* y, size_t n_rows) {
  if constexpr (!kMinimums<F>) {
    store_rows(acc, y, n_rows);
  } else {
    alignas(32) float a[kRows], b[kRows];
    store_rows(acc, a, kRows);
    store_rows(low, b, kRows);
    for (size_t r = 0; r < n_rows; ++r)
      y[r] = a[r] + b[r];
  }
}

/// The groups from group I of a chunk on, g being the chunk's first in the row; N activation rows,
/// acc and low [N, 8, 16].
template <class F, size_t I, int N>
inline void chunk_groups(const uint8_t* span, size_t first, const uint8_t* chunk, const ActRow* act,
                         size_t g, float* acc, float* low) {
  constexpr size_t kSteps = kGroupOf<F> / 4;
  if constexpr (I < F::kChunk / kGroupOf<F>) {
    const int8_t* q[N];
    for (int n = 0; n < N; ++n)
      q[n] = act[n].q + g * kGroupOf<F>;
    ColumnSums<N> sums;
    add_group_sums<F, I * kSteps, (I + 1) * kSteps>(chunk, q, &sums);
    const Floats scales = F::scales(span, first + I);
    for (size_t n = 0; n < N; ++n)
      add_products<F>(acc + (n * 8 + (g + I) % 8) * kRows, {sums.a[n], sums.b[n]}, scales,
                      act_scales<F>(act[n])[g + I], act_sums<F>(act[n])[g + I]);
    if constexpr (kMinimums<F>) {
      const Floats minimums = F::minimums(span, first + I);
      for (size_t n = 0; n < N; ++n)
        add_minimums(low + (n * 8 + (g + I) % 8) * kRows, minimums, act[n].fsum[g + I]);
    }
    chunk_groups<F, I + 1, N>(span, first, chunk, act, g, acc, low);
  }
}

template <class F, int N>
inline void span_groups(const uint8_t* span, size_t s, const ActRow* act, float* acc, float* low) {
  constexpr size_t kPerChunk = F::kChunk / kGroupOf<F>, kPerSpan = F::kSpan / kGroupOf<F>;
  for (size_t c = 0; c < F::kSpan / F::kChunk; ++c)
    chunk_groups<F, 0, N>(span, c * kPerChunk, F::chunk(span, c), act, s * kPerSpan + c * kPerChunk,
                          acc, low);
}

/// Activation rows up to which codes go from the tile to the products in registers, two rows at a
/// time.
constexpr size_t kDirectColumns = 4;

template <class F, int N>
void direct_product(const uint8_t* tiles, size_t n_rows, size_t k, const ActRow* act, float* y,
                    size_t y_stride) {
  constexpr size_t kAcc = 8 * kRows;
  alignas(64) float acc[N * kAcc], low[N * kAcc];
  for (size_t r = 0; r < n_rows; r += kRows) {
    for (float& v : acc)
      v = 0.0F;
    for (float& v : low)
      v = 0.0F;
    for (size_t s = 0; s < k / F::kSpan; ++s, tiles += F::kSpanBytes) {
      for (size_t i = 0; i < F::kSpanBytes; i += 64)
        prefetch(tiles + kAhead + i);
      if constexpr (N >= 2) span_groups<F, 2>(tiles, s, act, acc, low);
      if constexpr (N >= 4) span_groups<F, 2>(tiles, s, act + 2, acc + 2 * kAcc, low + 2 * kAcc);
      if constexpr (N % 2 == 1)
        span_groups<F, 1>(tiles, s, act + N - 1, acc + (N - 1) * kAcc, low + (N - 1) * kAcc);
    }
    for (size_t n = 0; n < N; ++n)
      store_sums<F>(acc + n * kAcc, low + n * kAcc, y + n * y_stride + r,
                    n_rows - r < kRows ? n_rows - r : kRows);
  }
}

template <class F>
void gemv(const uint8_t* tiles, size_t n_rows, size_t k, const ActRow* act, float* y) {
  direct_product<F, 1>(tiles, n_rows, k, act, y, 0);
}

template <class F, size_t S>
inline void store_steps(const uint8_t* chunk, uint8_t* steps) {
  if constexpr (S < F::kChunk / 4) {
    store_step(steps + 64 * S, F::template codes<S>(chunk, 0));
    store_step(steps + 64 * S + 32, F::template codes<S>(chunk, 32));
    store_steps<F, S + 1>(chunk, steps);
  }
}

/// A span as bytes, 64 of 16 rows per step, and its scales and minimums as f32.
template <class F>
inline void unpack_span(const uint8_t* span, uint8_t* steps, float* scales, float* minimums) {
  for (size_t i = 0; i < F::kSpanBytes; i += 64)
    prefetch(span + kAhead + i);
  for (size_t c = 0; c < F::kSpan / F::kChunk; ++c)
    store_steps<F, 0>(F::chunk(span, c), steps + c * F::kChunk * kRows);
  const auto store = [](float* to, Floats v) {
    _mm256_storeu_ps(to, v.a);
    _mm256_storeu_ps(to + 8, v.b);
  };
  for (size_t g = 0; g < F::kSpan / kGroupOf<F>; ++g) {
    store(scales + g * kRows, F::scales(span, g));
    if constexpr (kMinimums<F>) store(minimums + g * kRows, F::minimums(span, g));
  }
}

constexpr size_t kUnpackedColumns = 1024;
constexpr size_t kFewColumns = 16;

struct Unpacked {
  alignas(64) uint8_t steps[kUnpackedColumns * kRows];
  float acc[kPackedColumns * 8 * kRows], low[kPackedColumns * 8 * kRows];
  float scales[kUnpackedColumns / 16 * kRows], minimums[kUnpackedColumns / 32 * kRows];
};
static_assert(sizeof(Unpacked) <= kPackedScratchBytes);

/// One step of 8 rows x 4 activation rows of signed codes. In assembly for the same reason as
/// FourColumns.
struct FourSigned {
  __m256i s0, s1, s2, s3;

  void step(const uint8_t* codes, const int8_t* q0, const int8_t* q1, const int8_t* q2,
            const int8_t* q3) {
    const auto bytes4 = [](const int8_t* q) -> const char(&)[4] {
      return *reinterpret_cast<const char(*)[4]>(q);
    };
    __m256i w, magnitude, x;
    __asm__(
        "vmovdqu %[codes], %[w]\n\t"
        "vpabsb %[w], %[m]\n\t"
        "vpbroadcastd %[q0], %[x]\n\t"
        "vpsignb %[w], %[x], %[x]\n\t"
        "vpmaddubsw %[x], %[m], %[x]\n\t"
        "vpmaddwd %[one], %[x], %[x]\n\t"
        "vpaddd %[x], %[s0], %[s0]\n\t"
        "vpbroadcastd %[q1], %[x]\n\t"
        "vpsignb %[w], %[x], %[x]\n\t"
        "vpmaddubsw %[x], %[m], %[x]\n\t"
        "vpmaddwd %[one], %[x], %[x]\n\t"
        "vpaddd %[x], %[s1], %[s1]\n\t"
        "vpbroadcastd %[q2], %[x]\n\t"
        "vpsignb %[w], %[x], %[x]\n\t"
        "vpmaddubsw %[x], %[m], %[x]\n\t"
        "vpmaddwd %[one], %[x], %[x]\n\t"
        "vpaddd %[x], %[s2], %[s2]\n\t"
        "vpbroadcastd %[q3], %[x]\n\t"
        "vpsignb %[w], %[x], %[x]\n\t"
        "vpmaddubsw %[x], %[m], %[x]\n\t"
        "vpmaddwd %[one], %[x], %[x]\n\t"
        "vpaddd %[x], %[s3], %[s3]\n\t"
        : [s0] "+x"(s0), [s1] "+x"(s1), [s2] "+x"(s2), [s3] "+x"(s3), [w] "=&x"(w),
          [m] "=&x"(magnitude), [x] "=&x"(x)
        : [codes] "m"(*reinterpret_cast<const char(*)[32]>(codes)), [q0] "m"(bytes4(q0)),
          [q1] "m"(bytes4(q1)), [q2] "m"(bytes4(q2)), [q3] "m"(bytes4(q3)),
          [one] "x"(_mm256_set1_epi16(1)));
  }
};

/// done(c, 32-bit sums) of one group for each of N activation rows; q begin at the group.
template <class F, int N, class Done>
inline void unpacked_sums(const uint8_t* steps, const int8_t* q0, const int8_t* q1,
                          const int8_t* q2, const int8_t* q3, Done done) {
  constexpr size_t kSteps = kGroupOf<F> / 4;
  const __m256i zero = _mm256_setzero_si256();
  __m256i a0 = zero, b0 = zero, a1 = zero, b1 = zero, a2 = zero, b2 = zero, a3 = zero, b3 = zero;
  if constexpr (F::kWiden == 0 && N == 4) {
    FourSigned a = {zero, zero, zero, zero}, b = a;
#pragma GCC unroll 8
    for (size_t s = 0; s < 4 * kSteps; s += 4)
      a.step(steps + 16 * s, q0 + s, q1 + s, q2 + s, q3 + s);
#pragma GCC unroll 8
    for (size_t s = 0; s < 4 * kSteps; s += 4)
      b.step(steps + 16 * s + 32, q0 + s, q1 + s, q2 + s, q3 + s);
    a0 = a.s0, a1 = a.s1, a2 = a.s2, a3 = a.s3;
    b0 = b.s0, b1 = b.s1, b2 = b.s2, b3 = b.s3;
  } else if constexpr (F::kWiden == 0) {
    for (size_t s = 0; s < 4 * kSteps; s += 4, steps += 64) {
      const __m256i wa = load32(steps), wb = load32(steps + 32);
      const auto add = [&](__m256i* a, __m256i* b, const int8_t* q) {
        const __m256i x = four(q + s);
        *a = _mm256_add_epi32(*a, signed_products(wa, x));
        *b = _mm256_add_epi32(*b, signed_products(wb, x));
      };
      add(&a0, &b0, q0);
      if constexpr (N > 1) add(&a1, &b1, q1);
    }
  } else {
    constexpr size_t kPart = F::kWiden < kSteps ? F::kWiden : kSteps;
    for (size_t part = 0; part < kSteps; part += kPart) {
      FourColumns c = {zero, zero, zero, zero, zero, zero, zero, zero};
#pragma GCC unroll 8
      for (size_t i = 0; i < kPart; ++i, steps += 64) {
        const size_t s = 4 * (part + i);
        if constexpr (N == 4) {
          c.step(steps, q0 + s, q1 + s, q2 + s, q3 + s);
        } else {
          const __m256i wa = load32(steps), wb = load32(steps + 32);
          const __m256i x0 = four(q0 + s);
          c.a0 = accumulate(c.a0, wa, x0);
          c.b0 = accumulate(c.b0, wb, x0);
          if constexpr (N > 1) {
            const __m256i x1 = four(q1 + s);
            c.a1 = accumulate(c.a1, wa, x1);
            c.b1 = accumulate(c.b1, wb, x1);
          }
        }
      }
      const auto add = [](__m256i* a, __m256i* b, __m256i ca, __m256i cb) {
        *a = _mm256_add_epi32(*a, widened(ca));
        *b = _mm256_add_epi32(*b, widened(cb));
      };
      add(&a0, &b0, c.a0, c.b0);
      if constexpr (N > 1) add(&a1, &b1, c.a1, c.b1);
      if constexpr (N > 2) {
        add(&a2, &b2, c.a2, c.b2);
        add(&a3, &b3, c.a3, c.b3);
      }
    }
  }
  done(0, Sums{a0, b0});
  if constexpr (N > 1) done(1, Sums{a1, b1});
  if constexpr (N > 2) {
    done(2, Sums{a2, b2});
    done(3, Sums{a3, b3});
  }
}

/// Unpacked groups [first, first + n) times all activation rows, N at a time, then the rest.
template <class F, int N>
inline void unpacked_columns(const Unpacked& u, size_t first, size_t n, const ActRow* act,
                             size_t n_act, float* acc, float* low) {
  constexpr size_t kGroup = kGroupOf<F>, kAcc = 8 * kRows;
  size_t m = 0;
  for (; m + N <= n_act; m += N, acc += N * kAcc, low += N * kAcc) {
    // What the loop needs of the activation rows, so that it need not look it up again.
    const int8_t* q[4];
    const float *a_scale[N], *fsum[N];
    const int32_t* isum[N];
    for (size_t c = 0; c < 4; ++c)
      q[c] = act[m + (c < N ? c : 0)].q + first * kGroup;
    for (size_t c = 0; c < N; ++c) {
      a_scale[c] = act_scales<F>(act[m + c]);
      isum[c] = act_sums<F>(act[m + c]);
      fsum[c] = act[m + c].fsum;
    }
    const uint8_t* steps = u.steps;
    const float *scale = u.scales, *minimum = u.minimums;
    for (size_t g = first; g < first + n; ++g) {
      float *at = acc + g % 8 * kRows, *low_at = low + g % 8 * kRows;
      const auto row = [](const float* p) -> Floats {
        return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)};
      };
      const size_t i = (g - first) * kGroup;
      unpacked_sums<F, N>(steps, q[0] + i, q[1] + i, q[2] + i, q[3] + i, [&](size_t c, Sums sums) {
        add_products<F>(at + c * kAcc, sums, row(scale), a_scale[c][g], isum[c][g]);
        if constexpr (kMinimums<F>) add_minimums(low_at + c * kAcc, row(minimum), fsum[c][g]);
      });
      steps += kGroup * kRows;
      scale += kRows;
      minimum += kRows;
    }
  }
  if constexpr (N > 1) unpacked_columns<F, N / 2>(u, first, n, act + m, n_act - m, acc, low);
}

template <class F>
void gemm(const uint8_t* tiles, size_t n_rows, size_t k, const ActRow* act, size_t n_act, float* y,
          size_t y_stride, void* memory) {
  if (n_act == 1) return direct_product<F, 1>(tiles, n_rows, k, act, y, y_stride);
  if (n_act == 2) return direct_product<F, 2>(tiles, n_rows, k, act, y, y_stride);
  if (n_act == 3) return direct_product<F, 3>(tiles, n_rows, k, act, y, y_stride);
  if (n_act == kDirectColumns) return direct_product<F, 4>(tiles, n_rows, k, act, y, y_stride);
  constexpr size_t kPerSpan = F::kSpan / kGroupOf<F>;
  auto* u = static_cast<Unpacked*>(memory);
  const size_t n_spans = k / F::kSpan;
  // For few activation rows a little at a time, so that reading ahead goes on evenly.
  const size_t per_chunk = (n_act <= kFewColumns ? 256 : kUnpackedColumns) / F::kSpan;
  for (size_t m0 = 0; m0 < n_act; m0 += kPackedColumns) {
    const size_t n_m = n_act - m0 < kPackedColumns ? n_act - m0 : kPackedColumns;
    for (size_t r = 0; r < n_rows; r += kRows) {
      const uint8_t* tile = tiles + r / kRows * n_spans * F::kSpanBytes;
      for (size_t i = 0; i < n_m * 8 * kRows; ++i)
        u->acc[i] = 0.0F;
      for (size_t i = 0; kMinimums<F> && i < n_m * 8 * kRows; ++i)
        u->low[i] = 0.0F;
      for (size_t s = 0; s < n_spans; s += per_chunk) {
        const size_t n = n_spans - s < per_chunk ? n_spans - s : per_chunk;
        for (size_t i = 0; i < n; ++i)
          unpack_span<F>(tile + (s + i) * F::kSpanBytes, u->steps + i * F::kSpan * kRows,
                         u->scales + i * kPerSpan * kRows, u->minimums + i * kPerSpan * kRows);
        unpacked_columns<F, kColumnsAtOnce>(*u, s * kPerSpan, n * kPerSpan, act + m0, n_m, u->acc,
                                            u->low);
      }
      for (size_t m = 0; m < n_m; ++m)
        store_sums<F>(u->acc + m * 8 * kRows, u->low + m * 8 * kRows, y + (m0 + m) * y_stride + r,
                      n_rows - r < kRows ? n_rows - r : kRows);
    }
  }
}

template <class F>
void pack(const uint8_t* w, size_t row_bytes, size_t n_rows, size_t k, uint8_t* tile) {
  for (size_t s = 0; s < k / F::kSpan; ++s, tile += F::kSpanBytes) {
    const uint8_t* rows[kRows];
    for (size_t r = 0; r < kRows; ++r)
      rows[r] = r < n_rows ? w + r * row_bytes +
                                 s * (F::kSpan / kInfo<F>.block_elems) * kInfo<F>.block_bytes
                           : nullptr;
    if (n_rows < kRows) {
      for (size_t i = 0; i < F::kSpanBytes; ++i)
        tile[i] = 0;
    }
    F::pack(rows, tile);
  }
}

template <class F>
void unpack_row(const uint8_t* tile, size_t row, size_t k, uint8_t* codes, float* scales,
                float* minimums) {
  constexpr size_t kPerSpan = F::kSpan / kGroupOf<F>;
  alignas(64) uint8_t steps[F::kSpan * kRows];
  float s[kPerSpan * kRows], m[kPerSpan * kRows];
  for (size_t i = 0; i < k / F::kSpan; ++i, tile += F::kSpanBytes) {
    unpack_span<F>(tile, steps, s, m);
    for (size_t step = 0; step < F::kSpan / 4; ++step, codes += 4)
      __builtin_memcpy(codes, steps + step * 64 + row * 4, 4);
    for (size_t g = 0; g < kPerSpan; ++g) {
      *scales++ = s[g * kRows + row];
      if constexpr (kMinimums<F>) *minimums++ = m[g * kRows + row];
    }
  }
}

template <class F>
void set(KernelTable* table) {
  PackedKernels& packed = table->packed[F::kFormat];
  static_assert(F::kSpanBytes * kGroupOf<F> % F::kSpan == 0);
  packed.group_bytes = F::kSpanBytes * kGroupOf<F> / F::kSpan;
  packed.tile_rows = kRows;
  packed.tables = false;
  packed.pack = pack<F>;
  packed.unpack_row = unpack_row<F>;
  packed.gemv = gemv<F>;
  packed.gemm = gemm<F>;
}

}  // namespace

void set_small_groups(KernelTable* table) {
  set<Q4_0Tile>(table);
  set<Q4_1Tile>(table);
  set<Q5_0Tile>(table);
  set<Q8_0Tile>(table);
  set<Q4_KTile>(table);
  set<Q6_KTile>(table);
}

}  // namespace ts::avx2
