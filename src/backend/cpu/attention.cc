// Causal attention over a cache. Keys are taken in blocks of 64 on an absolute grid of positions.
// For one query row and head, each block gives its largest score m, the sum l of exp(score - m) and
// the weighted sum o of its values; blocks are joined in ascending order:
//   M' = max(M, m),  L = L exp(M - M') + l exp(m - M'),  O likewise,   result = O / L.
// The order depends on positions only, so neither the prefill chunk nor the number of threads
// changes a bit. Two ways through the same arithmetic: attend_rows (many rows: threads share rows,
// a block is converted to f32 once for several rows) and attend_blocks (few rows: threads share key
// blocks, which are joined afterwards).
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

constexpr int64_t kBlock = 64;
/// Rows that share one conversion of a key block.
constexpr int64_t kRowTile = 16;

/// Shapes of one call.
struct Geometry {
  int64_t n_rows, n_kv, group, head_dim;  // group = query heads per key head
  int64_t window, first_position;

  explicit Geometry(const AttentionArgs& args, const KvShape& shape)
      : n_rows(args.q.rows),
        n_kv(shape.n_kv_heads),
        group(args.n_heads / shape.n_kv_heads),
        head_dim(shape.head_dim),
        window(args.window),
        first_position(args.first_position) {}
  /// Visible keys of a row: [first_key, position].
  int64_t position(int64_t row) const { return first_position + row; }
  int64_t first_key(int64_t row) const {
    return window > 0 ? std::max<int64_t>(0, position(row) - window + 1) : 0;
  }
  int64_t first_block(int64_t row) const { return first_key(row) / kBlock; }
  int64_t last_block(int64_t row) const { return position(row) / kBlock; }
  int64_t n_blocks(int64_t row) const { return last_block(row) - first_block(row) + 1; }
};

/// One block's contribution, or several joined: o [head_dim], then m and l.
struct Partial {
  float* o;
  float m, l;
};

/// Keys and values of one head and block as f32 rows, in a thread's scratch or in the cache itself.
struct BlockRows {
  const float* k;
  const float* v;
  size_t stride;
};

BlockRows load_block(const KernelTable& table, const CpuKvCache& cache, int64_t head, int64_t begin,
                     int64_t count, float* scratch) {
  const auto dim = static_cast<size_t>(cache.shape().head_dim);
  const auto h = static_cast<size_t>(head);
  const auto at = static_cast<size_t>(begin);
  if (cache.type() == KvType::kF32) {
    const size_t stride = cache.row_bytes() / sizeof(float);
    return {reinterpret_cast<const float*>(cache.k_row(at)) + h * dim,
            reinterpret_cast<const float*>(cache.v_row(at)) + h * dim, stride};
  }
  const auto n = static_cast<size_t>(count);
  float* k = scratch;
  float* v = scratch + static_cast<size_t>(kBlock) * dim;
  cache.load(table, cache.k_row(at), h, n, k);
  cache.load(table, cache.v_row(at), h, n, v);
  return {k, v, dim};
}

/// Contribution of keys [begin, end) of a block whose rows start at position `rows_begin`.
void block_partial(const KernelTable& table, const float* q, float scale, const BlockRows& rows,
                   int64_t rows_begin, int64_t begin, int64_t end, int64_t head_dim, Partial& out) {
  float scores[kBlock];
  const auto skip = static_cast<size_t>(begin - rows_begin) * rows.stride;
  const auto n = static_cast<size_t>(end - begin);
  const auto dim = static_cast<size_t>(head_dim);
  table.attention_scores(q, rows.k + skip, rows.stride, n, dim, scale, scores);
  table.softmax_terms(scores, n, &out.m, &out.l);
  table.attention_values(scores, rows.v + skip, rows.stride, n, dim, out.o);
}

/// Joins `next` (a later block) into `sum`.
void join(const KernelTable& table, Partial& sum, const Partial& next, int64_t head_dim) {
  const float m = next.m > sum.m ? next.m : sum.m;
  const float a = table.exp(sum.m - m);
  const float b = table.exp(next.m - m);
  sum.l = a * sum.l + b * next.l;
  table.scaled_add(sum.o, next.o, static_cast<size_t>(head_dim), a, b);
  sum.m = m;
}

void finish(const KernelTable& table, const Partial& sum, int64_t head_dim, float* out) {
  std::memcpy(out, sum.o, static_cast<size_t>(head_dim) * sizeof(float));
  table.scale(out, static_cast<size_t>(head_dim), 1.0F / sum.l);
}

}  // namespace

void CpuBackend::attend_rows(const AttentionArgs& args, const CpuKvCache& cache) {
  const KernelTable& table = kernels_.table;
  const Geometry g(args, cache.shape());
  const auto dim = static_cast<size_t>(g.head_dim);
  const auto n_states = static_cast<size_t>(kRowTile * g.group);
  reserve_scratch(sizeof(float) * dim * (2 * static_cast<size_t>(kBlock) + n_states + 1) +
                      sizeof(Partial) * n_states + 64,
                  "attention");
  // Units of work: (key head, tile of rows), the most expensive first.
  const int64_t n_tiles = (g.n_rows + kRowTile - 1) / kRowTile;
  const int64_t n_units = n_tiles * g.n_kv;
  pool_.for_ranges(n_units, 1, [&](int thread, int64_t unit_begin, int64_t unit_end) {
    auto* states = reinterpret_cast<Partial*>(scratch(thread));
    float* kv =
        reinterpret_cast<float*>(scratch(thread) + (sizeof(Partial) * n_states + 63) / 64 * 64);
    float* fresh = kv + 2 * static_cast<size_t>(kBlock) * dim;
    float* sums = fresh + dim;
    for (int64_t unit = unit_begin; unit < unit_end; ++unit) {
      const int64_t head = unit % g.n_kv;
      const int64_t tile = n_tiles - 1 - unit / g.n_kv;
      const int64_t row_begin = tile * kRowTile;
      const int64_t row_end = std::min(row_begin + kRowTile, g.n_rows);
      for (int64_t block = g.first_block(row_begin); block <= g.last_block(row_end - 1); ++block) {
        const int64_t key_begin = block * kBlock;
        const int64_t key_end = std::min(key_begin + kBlock, g.position(row_end - 1) + 1);
        const BlockRows rows = load_block(table, cache, head, key_begin, key_end - key_begin, kv);
        for (int64_t r = row_begin; r < row_end; ++r) {
          const int64_t begin = std::max(key_begin, g.first_key(r));
          const int64_t end = std::min(key_end, g.position(r) + 1);
          if (begin >= end) continue;
          for (int64_t i = 0; i < g.group; ++i) {
            const int64_t state = (r - row_begin) * g.group + i;
            const float* q = args.q.row(r) + (head * g.group + i) * g.head_dim;
            float* sum = sums + static_cast<size_t>(state) * dim;
            if (block == g.first_block(r)) {
              states[state] = {sum, 0, 0};
              block_partial(table, q, args.scale, rows, key_begin, begin, end, g.head_dim,
                            states[state]);
            } else {
              Partial next = {fresh, 0, 0};
              block_partial(table, q, args.scale, rows, key_begin, begin, end, g.head_dim, next);
              join(table, states[state], next, g.head_dim);
            }
            if (block == g.last_block(r))
              finish(table, states[state], g.head_dim,
                     args.out.row(r) + (head * g.group + i) * g.head_dim);
          }
        }
      }
    }
  });
}

void CpuBackend::attend_blocks(const AttentionArgs& args, const CpuKvCache& cache) {
  const KernelTable& table = kernels_.table;
  const Geometry g(args, cache.shape());
  const auto dim = static_cast<size_t>(g.head_dim);
  const size_t record = dim + 2;
  reserve_scratch(sizeof(float) * 2 * static_cast<size_t>(kBlock) * dim, "attention");
  // Units of work: (row, block, key head). partials: [row][block][query head] records.
  std::vector<int64_t> row_start(static_cast<size_t>(g.n_rows) + 1, 0);
  for (int64_t r = 0; r < g.n_rows; ++r)
    row_start[static_cast<size_t>(r) + 1] = row_start[static_cast<size_t>(r)] + g.n_blocks(r);
  const int64_t n_blocks = row_start.back();
  const size_t needed = static_cast<size_t>(n_blocks * args.n_heads) * record;
  if (partials_.size() < needed) {
    try {
      partials_ = {};
      partials_ = AlignedBuffer<float>(needed + needed / 4);
    } catch (const std::bad_alloc&) {
      throw ResourceExhausted(
          fmt::format("not enough memory for the scratch of attention ({} f32 values)", needed));
    }
  }
  const int64_t n_units = n_blocks * g.n_kv;
  const auto work = [&](int thread, int64_t unit_begin, int64_t unit_end) {
    auto* kv = reinterpret_cast<float*>(scratch(thread));
    for (int64_t unit = unit_begin; unit < unit_end; ++unit) {
      const int64_t head = unit % g.n_kv;
      const int64_t slot = unit / g.n_kv;
      const int64_t r =
          std::upper_bound(row_start.begin(), row_start.end(), slot) - row_start.begin() - 1;
      const int64_t block = g.first_block(r) + slot - row_start[static_cast<size_t>(r)];
      const int64_t key_begin = block * kBlock;
      const int64_t begin = std::max(key_begin, g.first_key(r));
      const int64_t end = std::min(key_begin + kBlock, g.position(r) + 1);
      const BlockRows rows = load_block(table, cache, head, begin, end - begin, kv);
      for (int64_t i = 0; i < g.group; ++i) {
        const int64_t h = head * g.group + i;
        float* at = partials_.data() + static_cast<size_t>(slot * args.n_heads + h) * record;
        Partial partial = {at, 0, 0};
        block_partial(table, args.q.row(r) + h * g.head_dim, args.scale, rows, begin, begin, end,
                      g.head_dim, partial);
        at[dim] = partial.m;
        at[dim + 1] = partial.l;
      }
    }
  };
  // Joining is a small fraction of the work; rows x heads are shared out again.
  const auto join_all = [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t r = i / args.n_heads;
      const int64_t h = i % args.n_heads;
      Partial sum = {nullptr, 0, 0};
      for (int64_t slot = row_start[static_cast<size_t>(r)];
           slot < row_start[static_cast<size_t>(r) + 1]; ++slot) {
        float* at = partials_.data() + static_cast<size_t>(slot * args.n_heads + h) * record;
        const Partial next = {at, at[dim], at[dim + 1]};
        if (!sum.o)
          sum = next;
        else
          join(table, sum, next, g.head_dim);
      }
      finish(table, sum, g.head_dim, args.out.row(r) + h * g.head_dim);
    }
  };
  // About 0.25 ns per key element and query head for scores and values together.
  const double unit_ns = 0.25 * static_cast<double>(kBlock * g.head_dim * (g.group + 1));
  if (n_units == 1 || static_cast<double>(n_units) * unit_ns < 8000) {
    work(0, 0, n_units);
  } else {
    pool_.for_ranges(n_units, 1, work);
  }
  for_rows(g.n_rows * args.n_heads,
           0.2 * static_cast<double>(n_blocks) / static_cast<double>(g.n_rows) *
               static_cast<double>(g.head_dim),
           join_all);
}

void CpuBackend::attention(const AttentionArgs& args, KvCache& cache) {
  const profile::Scope timer("attention");
  CpuKvCache& kv = cpu_kv_cache(cache);
  const KvShape& shape = kv.shape();
  const int64_t n = args.q.rows;
  check_argument(args.n_heads >= 1 && args.n_heads % shape.n_kv_heads == 0,
                 "attention: the key heads do not divide the query heads");
  check_mat(args.q, n, args.n_heads * shape.head_dim, "attention: q");
  check_mat(args.k, n, shape.n_kv_heads * shape.head_dim, "attention: k");
  check_mat(args.v, n, shape.n_kv_heads * shape.head_dim, "attention: v");
  check_mat(args.out, n, args.n_heads * shape.head_dim, "attention: out");
  check_argument(args.window >= 0, "attention: negative window");
  if (args.first_position < 0 || n > shape.capacity || args.first_position > shape.capacity - n)
    throw ResourceExhausted(
        fmt::format("the context is full: {} tokens at position {} do not fit a cache of {}", n,
                    args.first_position, shape.capacity));
  if (n == 0) return;
  const std::lock_guard lock(mutex_);
  for_rows(n, static_cast<double>(args.k.cols), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const auto position = static_cast<size_t>(args.first_position + r);
      kv.store(kernels_.table, args.k.row(r), kv.k_row(position));
      kv.store(kernels_.table, args.v.row(r), kv.v_row(position));
    }
  });
  if (n >= kRowTile && n / kRowTile * shape.n_kv_heads >= pool_.n_threads())
    attend_rows(args, kv);
  else
    attend_blocks(args, kv);
}

}  // namespace ts
