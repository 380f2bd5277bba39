// The operations of gated-delta-rule layers. Heads, and the value elements of a head in blocks of
// kDeltaWidth, never mix, so threads share the blocks; each takes its blocks through all tokens of
// the call, whole chunks of the absolute grid of positions in the chunked form.
#include <algorithm>
#include <cmath>
#include <cstring>

#include <fmt/format.h>

#include <tensorsharp/error.hpp>

#include "backend/cpu/checks.h"
#include "backend/cpu/cpu_backend_impl.h"
#include "base/profile.h"

namespace ts {
namespace {

constexpr int64_t kChunk = kDeltaChunk;
constexpr int64_t kWidth = kDeltaWidth;
/// Channels of the convolution a thread works on at a time: taps and sums stay in its first-level
/// cache.
constexpr int64_t kConvChannels = 512;
constexpr int64_t kMaxTaps = 16;

/// A thread's scratch in the chunked form.
struct ChunkScratch {
  DeltaChunkWeights weights;
  float kk[kDeltaChunk * kDeltaChunk];
  float qk[kDeltaChunk * kDeltaChunk];
  // then delta_packed_floats(head_dim) floats
};

/// Consecutive rows computed in the same way.
struct Segment {
  int64_t begin, count;
  bool chunk;  // a whole chunk of the grid
};

std::vector<Segment> segments_of(int64_t first_position, int64_t n_rows) {
  std::vector<Segment> segments;
  for (int64_t r = 0; r < n_rows;) {
    const int64_t to_grid = kChunk - (first_position + r) % kChunk;
    const int64_t count = std::min(to_grid, n_rows - r);
    segments.push_back({r, count, count == kChunk});
    r += count;
  }
  return segments;
}

}  // namespace

void CpuBackend::split_query_gate(Mat p, int64_t head_dim, Mat query, Mat gate) {
  const profile::Scope timer("split_query_gate");
  check_argument(head_dim >= 1 && query.cols % head_dim == 0,
                 "split_query_gate: the head size does not divide the row");
  check_mat(p, p.rows, 2 * query.cols, "split_query_gate: p");
  check_mat(query, p.rows, query.cols, "split_query_gate: query");
  check_mat(gate, p.rows, query.cols, "split_query_gate: gate");
  const std::lock_guard lock(mutex_);
  for_rows(p.rows, static_cast<double>(p.cols) * 0.2, [&](int64_t begin, int64_t end) {
    const size_t bytes = static_cast<size_t>(head_dim) * sizeof(float);
    for (int64_t r = begin; r < end; ++r) {
      for (int64_t c = 0; c < query.cols; c += head_dim) {
        std::memcpy(query.row(r) + c, p.row(r) + 2 * c, bytes);
        std::memcpy(gate.row(r) + c, p.row(r) + 2 * c + head_dim, bytes);
      }
    }
  });
}

void CpuBackend::causal_conv(Mat x, const float* w, RecurrentState& state) {
  const profile::Scope timer("causal_conv");
  CpuRecurrentState& own = cpu_recurrent_state(state);
  const RecurrentShape& shape = own.shape();
  const int64_t taps = shape.conv_kernel;
  check_mat(x, x.rows, shape.conv_channels, "causal_conv: x");
  check_argument(w != nullptr && taps <= kMaxTaps, "causal_conv: no weights, or too many taps");
  if (x.rows == 0) return;
  const std::lock_guard lock(mutex_);
  const int64_t n_pieces = (shape.conv_channels + kConvChannels - 1) / kConvChannels;
  const auto work = [&](int64_t begin, int64_t end) {
    float sums[kConvChannels];
    float kept[kMaxTaps * kConvChannels];
    const float* rows[kMaxTaps];
    for (int64_t piece = begin; piece < end; ++piece) {
      const int64_t c = piece * kConvChannels;
      const auto count = static_cast<size_t>(std::min(kConvChannels, shape.conv_channels - c));
      // Row t of the call; rows before it are the history, oldest first.
      const auto source = [&](int64_t t) {
        return t >= 0 ? x.row(t) + c : own.history() + (taps - 1 + t) * shape.conv_channels + c;
      };
      for (int64_t j = 0; j + 1 < taps; ++j)
        std::memcpy(kept + j * kConvChannels, source(x.rows - taps + 1 + j), count * sizeof(float));
      // Backwards, since a row is needed by those after it and then overwritten.
      for (int64_t t = x.rows - 1; t >= 0; --t) {
        for (int64_t j = 0; j < taps; ++j)
          rows[j] = source(t - taps + 1 + j);
        kernels_.table.conv_taps(rows, w + c, static_cast<size_t>(shape.conv_channels),
                                 static_cast<size_t>(taps), count, sums);
        kernels_.table.sigmoid_gate(sums, sums, count, x.row(t) + c);
      }
      for (int64_t j = 0; j + 1 < taps; ++j)
        std::memcpy(own.history() + j * shape.conv_channels + c, kept + j * kConvChannels,
                    count * sizeof(float));
    }
  };
  // About 0.5 ns per channel and token for four taps and the SiLU.
  for_rows(n_pieces, 0.5 * static_cast<double>(x.rows * kConvChannels), work);
}

void CpuBackend::delta_rule(const DeltaRuleArgs& args, RecurrentState& state) {
  const profile::Scope timer("delta_rule");
  CpuRecurrentState& own = cpu_recurrent_state(state);
  const RecurrentShape& shape = own.shape();
  const KernelTable& table = kernels_.table;
  const int64_t n = args.mixed.rows, dim = shape.head_dim;
  const int64_t key_width = shape.n_k_heads * dim;
  check_mat(args.mixed, n, shape.conv_channels, "delta_rule: mixed");
  check_mat(args.decay, n, shape.n_v_heads, "delta_rule: decay");
  check_mat(args.beta, n, shape.n_v_heads, "delta_rule: beta");
  check_mat(args.out, n, shape.n_v_heads * dim, "delta_rule: out");
  check_argument(args.decay.stride == args.beta.stride,
                 "delta_rule: rows of decay and beta are not equally far apart");
  check_argument(args.decay_scale != nullptr && args.decay_bias != nullptr,
                 "delta_rule: no decay parameters");
  check_argument(args.first_position >= 0 && args.norm_eps > 0,
                 "delta_rule: a negative position, or no smallest length");
  if (n == 0) return;
  const std::lock_guard lock(mutex_);
  const float scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(dim)));
  for_rows(n, static_cast<double>(2 * key_width) * 0.5, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      float* row = args.mixed.row(r);
      for (int64_t h = 0; h < shape.n_k_heads; ++h) {
        float *q = row + h * dim, *k = q + key_width;
        table.l2_norm(q, static_cast<size_t>(dim), args.norm_eps, scale, q);
        table.l2_norm(k, static_cast<size_t>(dim), args.norm_eps, 1.0F, k);
      }
      table.delta_gates(args.decay.row(r), args.decay_bias, args.decay_scale, args.beta.row(r),
                        static_cast<size_t>(shape.n_v_heads), args.decay.row(r), args.beta.row(r));
    }
  });

  const std::vector<Segment> segments = segments_of(args.first_position, n);
  const bool chunks =
      std::any_of(segments.begin(), segments.end(), [](const Segment& s) { return s.chunk; });
  if (chunks)
    reserve_scratch(
        sizeof(ChunkScratch) + sizeof(float) * delta_packed_floats(static_cast<size_t>(dim)),
        "the delta rule");
  // Units of work: one block of one value head, those that share a key head next to each other.
  const int64_t n_blocks = own.n_blocks();
  const int64_t heads_per_key = shape.n_v_heads / shape.n_k_heads;
  const auto work = [&](int thread, int64_t unit_begin, int64_t unit_end) {
    auto* shared = chunks ? reinterpret_cast<ChunkScratch*>(scratch(thread)) : nullptr;
    auto* packed = shared ? reinterpret_cast<float*>(shared + 1) : nullptr;
    for (const Segment& segment : segments) {
      int64_t products_of = -1, weights_of = -1;  // key head and value head that `shared` is for
      for (int64_t unit = unit_begin; unit < unit_end; ++unit) {
        const int64_t block = unit % n_blocks;
        const int64_t key_head = unit / n_blocks / heads_per_key;
        const int64_t head = unit / n_blocks % heads_per_key * shape.n_k_heads + key_head;
        const float* row = args.mixed.row(segment.begin);
        const int64_t value = head * dim + block * kWidth;
        DeltaTokens tokens{};
        tokens.q = row + key_head * dim;
        tokens.k = tokens.q + key_width;
        tokens.v = row + 2 * key_width + value;
        tokens.o = args.out.row(segment.begin) + value;
        tokens.log_decay = args.decay.row(segment.begin) + head;
        tokens.beta = args.beta.row(segment.begin) + head;
        tokens.n = static_cast<size_t>(segment.count);
        tokens.head_dim = static_cast<size_t>(dim);
        tokens.width = static_cast<size_t>(std::min(kWidth, dim - block * kWidth));
        tokens.qk_stride = tokens.v_stride = static_cast<size_t>(args.mixed.stride);
        tokens.o_stride = static_cast<size_t>(args.out.stride);
        tokens.gate_stride = static_cast<size_t>(args.decay.stride);
        if (!segment.chunk) {
          table.delta_tokens(own.block(head, block), &tokens);
          continue;
        }
        if (products_of != key_head) {
          table.delta_chunk_products(tokens.q, tokens.k, tokens.qk_stride, tokens.head_dim, packed,
                                     shared->kk, shared->qk);
          products_of = key_head;
        }
        if (weights_of != head) {
          table.delta_chunk_weights(shared->kk, shared->qk, tokens.log_decay, tokens.beta,
                                    tokens.gate_stride, &shared->weights);
          weights_of = head;
        }
        table.delta_chunk(own.block(head, block), &tokens, packed, &shared->weights);
      }
    }
  };
  const int64_t n_units = shape.n_v_heads * n_blocks;
  // About 3 ns per key element, block and token.
  if (3.0 * static_cast<double>(n_units * dim * n) < 8000 || pool_.n_threads() == 1) {
    work(0, 0, n_units);
  } else {
    // What a key head's blocks share is computed once where a thread takes the whole head.
    const int64_t whole =
        shape.n_k_heads >= 4 * pool_.n_threads() ? heads_per_key * n_blocks : n_blocks;
    pool_.for_ranges(n_units, chunks ? whole : 1, work);
  }
}

void CpuBackend::gated_rms_norm(Mat x, const float* w, int64_t group, float eps, Mat gate,
                                Activation& activation) {
  const Mat y = activation.rows();
  check_mat(x, x.rows, x.cols, "gated_rms_norm: x");
  check_mat(gate, x.rows, x.cols, "gated_rms_norm: gate");
  check_mat(y, x.rows, x.cols, "gated_rms_norm: y");
  check_argument(w != nullptr && group >= 1 && x.cols % group == 0,
                 "gated_rms_norm: the group does not divide the row");
  if (x.rows == 0) return;
  const std::lock_guard lock(mutex_);
  make_rows(
      activation, static_cast<double>(x.cols), "gated_rms_norm", "gated_rms_norm+rotate+quantize",
      [&](int64_t r) {
        for (int64_t c = 0; c < x.cols; c += group)
          kernels_.table.rms_norm(x.row(r) + c, w, static_cast<size_t>(group), eps, x.row(r) + c);
        kernels_.table.silu_gate(gate.row(r), x.row(r), static_cast<size_t>(x.cols), y.row(r));
      });
}

}  // namespace ts
