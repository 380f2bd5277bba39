/// The contract between kernels and the CPU backend: plain data and function pointers. Files built
/// for an instruction set include this header, intrinsics and nothing else.
///
/// How integer products are defined, for every instruction set, bit for bit
/// -----------------------------------------------------------------------
/// A weight is (code - offset) * scale + minimum, an activation is q * a_scale. Columns fall into
/// groups of `group` (16, 32, 64 or 128) elements that share one scale on both sides. For one
/// output
///   s[g]       = sum over the group of (code - offset) * q                     exact, int32
///   acc[g % 8] = acc[g % 8] + float(s[g]) * (scale[g] * a_scale[g])            f32, g ascending
/// and, for formats with a minimum per `min_group` elements,
///   low[j % 8] = low[j % 8] + minimum[j] * fsum[j],   fsum[j] = a_scale * float(sum of q)
///   y = tree(acc)   or   y = tree(acc) + tree(low)
///   tree(l) = ((l0 + l4) + (l2 + l6)) + ((l1 + l5) + (l3 + l7))
/// Multiplications and additions are separate f32 operations, rounded to nearest even. The order
/// depends on the group number alone, so a kernel may keep rows, columns or groups in its lanes.
///
/// Float products use 16 lanes: acc[e % 16] += w[e] * x[e], e ascending, then l[i] = acc[i] +
/// acc[i + 8] and tree(l).
#pragma once

#include <cstddef>
#include <cstdint>

namespace ts {

/// Formats with integer kernels; the row order of all per-format tables here.
enum IntFormat : uint8_t {
  kIntQ4_0,
  kIntQ4_1,
  kIntQ5_0,
  kIntQ5_1,
  kIntQ8_0,
  kIntQ2_K,
  kIntQ3_K,
  kIntQ4_K,
  kIntQ5_K,
  kIntQ6_K,
  kIntTQ1_0,
  kIntTQ2_0,
  kIntQ1_0,
  kIntQ2_0,
  kIntPQ2_0,
  kIntPTQ1_0,
  kIntFormats
};

/// Formats whose products run on f32 activations.
enum FloatFormat : uint8_t { kFloatF32, kFloatF16, kFloatBF16, kFloatFormats };

/// What an integer format looks like once unpacked.
struct IntFormatInfo {
  uint16_t block_elems, block_bytes;
  uint16_t group;      ///< elements per scale, as kernels see it
  uint16_t act_group;  ///< elements per activation scale: 32, 64 or 128
  uint16_t min_group;  ///< elements per minimum (16 or 32); 0 = none
  uint8_t offset;      ///< subtracted from every code
  uint8_t max_code;    ///< codes are 0..max_code; 255 = signed bytes (offset 0)
};

constexpr IntFormatInfo kIntFormatInfo[kIntFormats] = {
    {32, 18, 32, 32, 0, 8, 15},     // Q4_0
    {32, 20, 32, 32, 32, 0, 15},    // Q4_1
    {32, 22, 32, 32, 0, 16, 31},    // Q5_0
    {32, 24, 32, 32, 32, 0, 31},    // Q5_1
    {32, 34, 32, 32, 0, 0, 255},    // Q8_0
    {256, 84, 16, 32, 16, 0, 3},    // Q2_K
    {256, 110, 16, 32, 0, 4, 7},    // Q3_K
    {256, 144, 32, 32, 32, 0, 15},  // Q4_K
    {256, 176, 32, 32, 32, 0, 31},  // Q5_K
    {256, 210, 16, 32, 0, 32, 63},  // Q6_K
    {256, 54, 128, 128, 0, 1, 2},   // TQ1_0
    {256, 66, 128, 128, 0, 1, 3},   // TQ2_0
    {128, 18, 128, 128, 0, 1, 2},   // Q1_0: codes 0 and 2
    {64, 18, 64, 64, 0, 1, 3},      // Q2_0
    {128, 34, 128, 128, 0, 1, 3},   // PQ2_0
    {128, 28, 128, 128, 0, 1, 2},   // PTQ1_0
};

/// One row of activations, quantized. Arrays per group are padded with zeros to a multiple of 8
/// entries plus 8; q to a multiple of 64 plus 64.
struct ActRow {
  const int8_t* q;      ///< [k] in -127..127
  const float* scale;   ///< per act_group
  const int32_t* isum;  ///< sum of q per act_group
  const float* fsum;    ///< scale * float(isum)
  // The same per 16 elements; only where act_group is 32, else null.
  const float* scale16;
  const int32_t* isum16;
  const float* fsum16;
  /// q rearranged by interleave4(); only where act_group is 128, else null.
  const int8_t* q4;
  /// Product tables of q (make_tables()); null where no layout reads any or the rows are too many.
  const int8_t* tables;
};
struct ActRowOut {
  int8_t* q;
  float* scale;
  int32_t* isum;
  float* fsum;
  float* scale16;
  int32_t* isum16;
  float* fsum16;
};

/// Unpacked weight rows.
struct WeightTile {
  const uint8_t* codes;  ///< [n_rows, code_stride]
  const float* scales;   ///< [n_rows, scale_stride], per group, zero-padded to a multiple of 8
  const float* mins;     ///< [n_rows, min_stride], per min_group, zero-padded likewise; or null
  size_t code_stride, scale_stride, min_stride;
  size_t n_rows, k;
};

/// Value elements of a head that the delta-rule kernels take at a time, and tokens of a chunk.
constexpr size_t kDeltaWidth = 32;
constexpr size_t kDeltaChunk = 64;

/// One block of a head's state, s [head_dim, kDeltaWidth] with s[i][j] = S[value j][key i], and the
/// rows of n tokens. q and k are normalised, q is scaled by 1 / sqrt(head_dim). Strides in floats.
struct DeltaTokens {
  const float *q, *k;         ///< [n, head_dim]
  const float* v;             ///< [n, width]
  float* o;                   ///< [n, width]
  const float* log_decay;     ///< [n]
  const float* beta;          ///< [n]
  size_t n, head_dim, width;  ///< width <= kDeltaWidth: columns of s in use
  size_t qk_stride, v_stride, o_stride, gate_stride;
};

/// Floats of a packed chunk: queries [kDeltaChunk, head_dim], keys likewise, and the keys once more
/// as [head_dim, kDeltaChunk]. Rows of activations are often whole pages apart and would share few
/// cache sets.
constexpr size_t delta_packed_floats(size_t head_dim) {
  return 3 * kDeltaChunk * head_dim;
}

/// What all blocks of a head share in a chunk of kDeltaChunk tokens. G_t is the sum of the log
/// decays from the chunk's first token to token t.
struct DeltaChunkWeights {
  float a[kDeltaChunk * kDeltaChunk];  ///< beta_t e^(G_t - G_s) (k_t . k_s) for s < t, else 0
  float p[kDeltaChunk * kDeltaChunk];  ///< e^(G_t - G_s) (q_t . k_s) for s <= t, else 0
  float from_start[kDeltaChunk];       ///< e^(G_t)
  float to_end[kDeltaChunk];           ///< e^(G_last - G_t)
};

/// A signed blockwise Walsh-Hadamard transform of n elements (definition: hadamard/transform.h).
struct SignedTransform {
  size_t n, block;        ///< n is a multiple of block, block a power of two
  float factor;           ///< transform_factor(block)
  const uint32_t* flips;  ///< [n] 0x80000000 where the sign is -1, else 0; null = no signs
};

/// Rows of a tile of repacked weights, unless a layout says otherwise, and the most it may say.
constexpr size_t kPackedRows = 16;
constexpr size_t kMostPackedRows = 32;
/// Activation rows that a packed product takes in one pass over the weights, and the 64-byte
/// aligned scratch that it needs for them.
constexpr size_t kPackedColumns = 64;
constexpr size_t kPackedScratchBytes =
    1024 * kMostPackedRows + kPackedColumns * 8 * kMostPackedRows * sizeof(float);
/// Product tables are made for so many activation rows at most.
constexpr size_t kTableColumns = 4;

/// Products on weights repacked for this instruction set: tiles of tile_rows rows, each of
/// k / group * group_bytes bytes, one after the other. The layout is private to the functions of
/// one table (docs/kernels.md); results are those of the definition above, bit for bit. All null,
/// or none.
struct PackedKernels {
  size_t group_bytes;
  size_t tile_rows = kPackedRows;  ///< kPackedRows or kMostPackedRows
  /// gemv reads ActRow::tables, gemm does where all rows have them.
  bool tables = false;
  /// Rows as in the file -> one tile. n_rows <= tile_rows; missing rows get zero scales.
  void (*pack)(const uint8_t* w, size_t row_bytes, size_t n_rows, size_t k, uint8_t* tile);
  /// Codes [k], scales [k / group] and minimums [k / min_group] (not written in formats without) of
  /// one row of a tile.
  void (*unpack_row)(const uint8_t* tile, size_t row, size_t k, uint8_t* codes, float* scales,
                     float* minimums);
  /// y[r] for the first n_rows rows of the tiles and one activation row.
  void (*gemv)(const uint8_t* tiles, size_t n_rows, size_t k, const ActRow* act, float* y);
  /// y[m * y_stride + r] for n_act activation rows.
  void (*gemm)(const uint8_t* tiles, size_t n_rows, size_t k, const ActRow* act, size_t n_act,
               float* y, size_t y_stride, void* scratch);
};

/// All functions are noexcept in effect (they cannot throw) and never null in a finished table,
/// except int_gemv, whose absence means unpack + int_tile, make_tables and those of formats that
/// are not repacked.
struct KernelTable {
  const char* isa;  ///< the highest instruction set in it

  /// Symmetric int8 per `group` elements (a last short group has its own scale):
  /// scale = max|x| / 127, q = round_half_even(x * (127 / max|x|)). A group whose maximum is below
  /// 1e-30 is zero; one with a NaN or an infinity gets a NaN scale and zero codes, so that the
  /// product is NaN and the fault stays visible. k is any positive number.
  void (*quantize_row)(const float* x, size_t k, size_t group, const ActRowOut* out);

  /// Rearranges whole runs of 128 elements: element 4 m + p of a run goes to 32 p + m. Formats that
  /// keep four consecutive codes in a byte multiply byte planes with it. What
  /// follows the last whole run is not written.
  void (*interleave4)(const int8_t* q, size_t k, int8_t* q4);

  /// Product tables of k activations in groups of 128, table_bytes per group; for layouts that look
  /// sums of products up instead of multiplying. 0 and null where no layout of this table does. The
  /// content is private to the table.
  size_t table_bytes;
  void (*make_tables)(const int8_t* q, size_t k, int8_t* tables);

  /// Codes, scales and minimums of one row of k elements (a multiple of the block).
  void (*unpack[kIntFormats])(const uint8_t* row, size_t k, uint8_t* codes, float* scales,
                              float* mins);
  /// y[m * y_stride + r] for all rows r of the tile and n_act activation rows.
  void (*int_tile)(const IntFormatInfo* format, const WeightTile* tile, const ActRow* act,
                   size_t n_act, float* y, size_t y_stride);
  /// y[r] for n_rows packed rows and one activation row.
  void (*int_gemv[kIntFormats])(const uint8_t* w, size_t row_bytes, size_t n_rows, size_t k,
                                const ActRow* act, float* y);
  PackedKernels packed[kIntFormats];

  /// f32 values of k packed float elements.
  void (*to_f32[kFloatFormats])(const uint8_t* src, size_t k, float* dst);
  /// y[r] = row r of packed float weights times x.
  void (*float_gemv[kFloatFormats])(const uint8_t* w, size_t row_bytes, size_t n_rows, size_t k,
                                    const float* x, float* y);
  /// y[m * y_stride + r] = w row r times x row m.
  void (*float_tile)(const float* w, size_t w_stride, size_t n_rows, size_t k, const float* x,
                     size_t x_stride, size_t n_x, float* y, size_t y_stride);

  /// y = x / sqrt(mean(x^2) + eps) * w; the sum of squares in double, 8 lanes and tree().
  void (*rms_norm)(const float* x, const float* w, size_t n, float eps, float* y);
  void (*add)(float* x, const float* y, size_t n);                                ///< x += y
  void (*silu_gate)(const float* gate, const float* up, size_t n, float* out);    ///< silu(g) * u
  void (*sigmoid_gate)(const float* gate, const float* x, size_t n, float* out);  ///< sigmoid(g)*x
  void (*gelu_gate)(const float* gate, const float* up, size_t n, float* out);    ///< tanh form
  void (*softcap)(float* x, size_t n, float cap);  ///< cap*tanh(x/cap)
  /// Rotates pairs (j, j + n_pairs) or (2j, 2j + 1) of one head in place.
  void (*rope_half_split)(float* x, const float* cos, const float* sin, size_t n_pairs);
  void (*rope_interleaved)(float* x, const float* cos, const float* sin, size_t n_pairs);
  void (*scale)(float* x, size_t n, float factor);
  void (*f32_to_f16)(const float* src, size_t n, uint16_t* dst);
  /// dst = codes * scale, one scale per 32 elements (a last short group has its own).
  void (*dequantize32)(const int8_t* codes, const float* scales, size_t n, float* dst);

  /// scores[i] = (q . k_row(i)) * factor for n rows of f32 keys, in the order of float products.
  void (*attention_scores)(const float* q, const float* k, size_t k_stride, size_t n,
                           size_t head_dim, float factor, float* scores);
  /// Replaces scores by exp(score - max) and returns max and the sum (8 lanes by index, tree()).
  /// n >= 1. A NaN score makes the sum NaN.
  void (*softmax_terms)(float* scores, size_t n, float* max, float* sum);
  /// out[d] = sum over i ascending of p[i] * v[i][d].
  void (*attention_values)(const float* p, const float* v, size_t v_stride, size_t n,
                           size_t head_dim, float* out);
  float (*exp)(float x);  ///< e^x as softmax_terms computes it
  /// out[d] = a * out[d] + b * x[d].
  void (*scaled_add)(float* out, const float* x, size_t n, float a, float b);

  // Gated delta rule (Yang, Kautz, Hatamizadeh 2024, "Gated Delta Networks"). Sums run over keys,
  // taps or tokens in ascending order with one accumulator per result.

  /// y = x * (factor / max(norm, eps)); the sum of squares as in rms_norm.
  void (*l2_norm)(const float* x, size_t n, float eps, float factor, float* y);
  /// out[c] = sum over taps j of w[j * w_stride + c] * rows[j][c]. out overlaps no row.
  void (*conv_taps)(const float* const* rows, const float* w, size_t w_stride, size_t n_taps,
                    size_t n, float* out);
  /// log_decay = scale * softplus(a + bias), beta = sigmoid(b). In place is allowed.
  void (*delta_gates)(const float* a, const float* bias, const float* scale, const float* b,
                      size_t n, float* log_decay, float* beta);
  /// Token after token: p = e^g S k, d = beta (v - p), S = e^g S + d k^T, o = S q.
  void (*delta_tokens)(float* s, const DeltaTokens* tokens);
  /// Packs queries and keys of a chunk, and kk[t][s] = k_t . k_s and qk[t][s] = q_t . k_s,
  /// [kDeltaChunk, kDeltaChunk], for all s <= t (above the diagonal only its tile is written).
  void (*delta_chunk_products)(const float* q, const float* k, size_t stride, size_t head_dim,
                               float* packed, float* kk, float* qk);
  void (*delta_chunk_weights)(const float* kk, const float* qk, const float* log_decay,
                              const float* beta, size_t gate_stride, DeltaChunkWeights* out);
  /// The same as delta_tokens for a whole chunk (n = kDeltaChunk), in another order of summation:
  ///   (I + a) U = beta (v - e^G S k),  o = e^G S q + p U,  S = e^G_last S + sum to_end U k^T.
  /// Queries and keys come from `packed`.
  void (*delta_chunk)(float* s, const DeltaTokens* chunk, const float* packed,
                      const DeltaChunkWeights* weights);
  /// y = H (s . x); x and y are the same or do not overlap. The order of operations is that of the
  /// definition, on every instruction set.
  void (*rotate)(const SignedTransform* t, const float* x, float* y);
  /// y = s . (H x), likewise.
  void (*unrotate)(const SignedTransform* t, const float* x, float* y);
};

}  // namespace ts
