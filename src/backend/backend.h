/// The operations a model's forward pass is written in. One implementation per device; the CPU's
/// `ref` kernels define the numbers. All matrices are f32, row-major, one row per token, unless
/// stated otherwise. Every operation gives the same bits for a row whatever other rows are computed
/// with it and however many threads run (so tokens depend on neither batch, chunk nor threads).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "backend/activation.h"
#include "backend/matrix.h"
#include "hadamard/rotation.h"
#include "tensor/tensor_view.h"

namespace ts {

/// A weight matrix prepared for a backend: either the mapped bytes or a repacked copy, never both.
/// Immutable. Keeps whatever it points into alive.
class Weight {
 public:
  virtual ~Weight() = default;
  virtual TypeId type() const = 0;
  virtual int64_t n_rows() const = 0;           ///< outputs
  virtual int64_t n_cols() const = 0;           ///< inputs
  virtual uint64_t bytes() const = 0;           ///< read per use as a matrix
  virtual std::string_view kernel() const = 0;  ///< name of the kernel that serves it
  /// The bytes of its tensor that it goes on reading; empty once it has a copy of its own.
  virtual std::span<const std::byte> mapped_bytes() const = 0;
  /// Where in this process's memory it lies: mapped_bytes(), or its copy; empty when elsewhere.
  virtual std::span<const std::byte> host_bytes() const = 0;
};

/// Told of parts of a tensor's bytes that will not be read again.
using ReleaseBytes = std::function<void(std::span<const std::byte>)>;

enum class WeightUse {
  kMatrix,          ///< for linear() alone
  kTable,           ///< for embed() alone
  kTableAndMatrix,  ///< for both
};

/// One product of a linear() call: y = R_out^T W R_in x (+ bias). Rotations outlive the Activation
/// they were used with.
struct LinearJob {
  const Weight* weight = nullptr;
  Mat y;                             ///< [n_tokens, weight->n_rows()]
  const float* bias = nullptr;       ///< [n_rows], host memory; null = none
  const Rotation* input = nullptr;   ///< of width weight->n_cols(); null = none
  const Rotation* output = nullptr;  ///< of width weight->n_rows(), ungrouped; null = none
};

enum class GatedUnit { kSilu, kGeluTanh, kSigmoid };
enum class KvType : uint8_t { kF32, kF16, kQ8 };

/// Rotary embedding tables, made once per model by the model code.
/// angle(pos, j) = pos * inverse_frequency[j]; both cos and sin are multiplied by `scale`.
struct Rope {
  std::vector<double> inverse_frequency;  ///< n_rot / 2 entries
  float scale = 1.0F;
  bool half_split = false;  ///< pairs (j, j + n_rot/2); otherwise (2j, 2j + 1)
};

/// Keys and values of one attention layer, one row per position:
/// k [capacity, n_kv_heads * head_dim], v likewise. Owned by the sequence's state.
class KvCache {
 public:
  virtual ~KvCache() = default;
  virtual int64_t capacity() const = 0;
  virtual uint64_t bytes() const = 0;
};

struct KvShape {
  int64_t capacity = 0;  ///< positions
  int64_t n_kv_heads = 0;
  int64_t head_dim = 0;
};

/// A gated-delta-rule layer. Value head h reads key head h mod n_k_heads.
struct RecurrentShape {
  int64_t n_k_heads = 0;      ///< divides n_v_heads
  int64_t n_v_heads = 0;      ///< 0 = the layer has no recurrent state
  int64_t head_dim = 0;       ///< of keys, queries and values
  int64_t conv_channels = 0;  ///< (2 * n_k_heads + n_v_heads) * head_dim
  int64_t conv_kernel = 0;    ///< taps, the current token's included

  friend bool operator==(const RecurrentShape&, const RecurrentShape&) = default;
};

/// What one gated-delta-rule layer remembers of a sequence, whatever its length: f32 matrices
/// S [n_v_heads, head_dim, head_dim] and the last conv_kernel - 1 rows that entered the
/// convolution. Zero at the beginning of a sequence. Owned by the sequence's state.
class RecurrentState {
 public:
  virtual ~RecurrentState() = default;
  virtual const RecurrentShape& shape() const = 0;
  virtual uint64_t bytes() const = 0;
};

struct AttentionArgs {
  Mat q;    ///< [n_tokens, n_heads * head_dim], after rotary embedding
  Mat k;    ///< [n_tokens, n_kv_heads * head_dim]: stored at positions first_position...
  Mat v;    ///< as k
  Mat out;  ///< [n_tokens, n_heads * head_dim]
  int64_t first_position = 0;  ///< of row 0; rows are consecutive
  int64_t n_heads = 0;
  float scale = 1.0F;
  int64_t window = 0;  ///< key p visible iff query - p < window; 0 = all earlier keys
};

/// One gated-delta-rule step per token (Yang, Kautz, Hatamizadeh 2024, "Gated Delta Networks"), per
/// value head with q and k of its key head, normalised to length 1:
///   g = decay_scale * softplus(decay + decay_bias),  b = sigmoid(beta)
///   S = e^g S;  S = S + b (v - S k) k^T;  out = S q / sqrt(head_dim)
/// Whole blocks of 64 tokens on the grid of absolute positions are computed in a chunked form, the
/// rest token by token: a token's result depends on how passes lie on that grid, not on their
/// sizes.
struct DeltaRuleArgs {
  Mat mixed;  ///< [n_tokens, conv_channels]: queries | keys | values; q and k are overwritten
  Mat decay;  ///< [n_tokens, n_v_heads], overwritten
  Mat beta;   ///< [n_tokens, n_v_heads], overwritten
  Mat out;    ///< [n_tokens, n_v_heads * head_dim]
  const float* decay_scale = nullptr;  ///< [n_v_heads] not positive
  const float* decay_bias = nullptr;   ///< [n_v_heads]
  int64_t first_position = 0;          ///< of row 0; rows are consecutive
  float norm_eps = 0;                  ///< smallest length of q and k
};

/// Thread-safe: operations of several callers are serialised inside.
class Backend {
 public:
  virtual ~Backend() = default;
  virtual std::string_view name() const = 0;  ///< "cpu"
  virtual std::string_view isa() const = 0;   ///< "avx2", "ref", ...
  virtual int n_threads() const = 0;
  /// True when products run on f32 activations against decoded weights.
  virtual bool exact() const = 0;

  /// Zeroed memory for activations. ResourceExhausted names `what`.
  virtual std::shared_ptr<Buffer> allocate(size_t n_floats, std::string_view what) = 0;
  /// Prepares a matrix [n_rows = ne[1], n_cols = ne[0]]. `keep_alive` owns the bytes of `tensor`.
  /// A repacked weight (mapped_bytes() empty) lets go of them, part by part while it is made.
  virtual std::shared_ptr<const Weight> upload(const TensorView& tensor,
                                               std::shared_ptr<const void> keep_alive,
                                               WeightUse use = WeightUse::kTableAndMatrix,
                                               const ReleaseBytes& release = {}) = 0;
  virtual std::unique_ptr<KvCache> make_kv_cache(const KvShape& shape, KvType type) = 0;
  /// Raw contents of positions [begin, end), for saving and restoring sequences. The byte layout is
  /// private to backend and type; sizes are equal for equal shapes.
  virtual std::vector<std::byte> read_kv(const KvCache& cache, int64_t begin, int64_t end) = 0;
  virtual void write_kv(KvCache& cache, int64_t begin, std::span<const std::byte> bytes) = 0;

  /// All zero. InvalidArgument: a shape that is inconsistent; ResourceExhausted.
  virtual std::unique_ptr<RecurrentState> make_recurrent_state(const RecurrentShape& shape) = 0;
  /// Raw contents, state.bytes() long, for saving and restoring sequences. The byte layout is
  /// private to the backend, of f32 values throughout; sizes are equal for equal shapes.
  virtual std::vector<std::byte> read_recurrent(const RecurrentState& state) = 0;
  /// InvalidArgument unless `bytes` is state.bytes() long.
  virtual void write_recurrent(RecurrentState& state, std::span<const std::byte> bytes) = 0;
  /// Back to the beginning of a sequence.
  virtual void reset_recurrent(RecurrentState& state) = 0;

  /// All jobs read the same rows x [n_tokens, n_cols]; one parallel region for all of them.
  virtual void linear(std::span<const LinearJob> jobs, Activation& x) = 0;
  /// y[i] = scale * decoded row ids[i] of the table, after the inverse of `rotation` where the rows
  /// are stored rotated (null = they are not).
  virtual void embed(const Weight& table, std::span<const int32_t> ids, float scale, Mat y,
                     const Rotation* rotation = nullptr) = 0;
  /// Row-wise y = x / sqrt(mean(x^2) + eps) * w. `group` = elements per norm (the row width, or a
  /// head size: each row is then several groups sharing w [group]). x and y may be the same.
  virtual void rms_norm(Mat x, const float* w, int64_t group, float eps, Mat y) = 0;
  /// The same with one norm per row, into the rows of `y` (w [x.cols]). `y` must have been reset;
  /// its expected forms are made in the same pass over the rows. Same bits as rms_norm() and
  /// linear().
  virtual void rms_norm(Mat x, const float* w, float eps, Activation& y) = 0;
  /// Rotates n_heads heads of head_dim per row in place; positions are first_position + row.
  virtual void rope(Mat x, int64_t n_heads, int64_t head_dim, int64_t first_position,
                    const Rope& rope) = 0;
  /// Stores k and v, then causal attention over all positions up to each row's own. Query head h
  /// uses key head h / (n_heads / n_kv_heads).
  virtual void attention(const AttentionArgs& args, KvCache& cache) = 0;
  /// Splits rows of heads [query | gate] of head_dim each: p [n_tokens, n_heads * 2 * head_dim]
  /// into query and gate [n_tokens, n_heads * head_dim].
  virtual void split_query_gate(Mat p, int64_t head_dim, Mat query, Mat gate) = 0;
  /// Depthwise causal convolution over the tokens, then SiLU, in place:
  ///   x_t[c] = silu(sum over j of w[j][c] x_{t - taps + 1 + j}[c])
  /// x [n_tokens, conv_channels], w [conv_kernel, conv_channels] in host memory. Earlier rows come
  /// from the state, which then keeps the last conv_kernel - 1.
  virtual void causal_conv(Mat x, const float* w, RecurrentState& state) = 0;
  virtual void delta_rule(const DeltaRuleArgs& args, RecurrentState& state) = 0;
  /// y = rms_norm(x) * w * silu(gate), norms over `group` elements; x is overwritten, and may be
  /// the rows of y. `y` as for rms_norm() into an Activation.
  virtual void gated_rms_norm(Mat x, const float* w, int64_t group, float eps, Mat gate,
                              Activation& y) = 0;
  /// out = unit(gate) * up; out may be gate or up.
  virtual void gated_unit(GatedUnit unit, Mat gate, Mat up, Mat out) = 0;
  /// x += y.
  virtual void add(Mat x, Mat y) = 0;
  /// x = cap * tanh(x / cap).
  virtual void softcap(Mat x, float cap) = 0;
};

}  // namespace ts
