// Processor cycles of each kernel on data in the first-level caches, per 32 weights or elements.
// Cycles are counted by timing a chain of dependent additions (one per cycle) right before and
// after each kernel call, in the thread's own processor time, so the figures hold on a busy machine
// and at any clock. The lower quartile of 200 calls is printed.
// With "memory", products of repacked tiles instead: with one tile in the caches, streaming 256 MB
// of tiles from memory, and reading them alone, in turns; medians.
//   kernel_cycles_bench [ISA [K [memory]]]
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <random>
#include <string>
#include <vector>

#include <tensorsharp/error.hpp>

#include "backend/cpu/quantized_rows.h"
#include "base/aligned_buffer.h"
#include "base/page_buffer.h"
#include "hadamard/transform.h"
#include "kernels/kernels.h"

namespace {
using namespace ts;

double now() {
  timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

/// Cycles per second at this moment.
double clock_rate() {
  // Unrolled: a loop around a single addition takes one or two cycles, as its place in a cache line
  // has it.
  constexpr int kRounds = 3000, kAdds = 32;
  const double start = now();
  uint64_t x = 1;
  for (int i = 0; i < kRounds; ++i) {
#pragma GCC unroll 32
    for (int j = 0; j < kAdds; ++j) {
      x += 1;
      asm volatile("" : "+r"(x));
    }
  }
  return kRounds * kAdds / (now() - start);
}

template <typename F>
double cycles(F&& call) {
  std::vector<double> samples;
  // Short calls are repeated until the timer's resolution does not matter.
  int repeat = 1;
  for (double seconds = 0; seconds < 2e-5; repeat *= 2) {
    const double start = now();
    for (int i = 0; i < repeat; ++i)
      call();
    seconds = now() - start;
  }
  for (int i = 0; i < 200; ++i) {
    const double before = clock_rate();
    const double start = now();
    for (int j = 0; j < repeat; ++j)
      call();
    const double seconds = now() - start;
    samples.push_back(seconds / repeat * (before + clock_rate()) / 2);
  }
  std::sort(samples.begin(), samples.end());
  return samples[samples.size() / 4];
}

constexpr const char* kNames[kIntFormats] = {"q4_0", "q4_1", "q5_0",  "q5_1",  "q8_0",  "q2_k",
                                             "q3_k", "q4_k", "q5_k",  "q6_k",  "tq1_0", "tq2_0",
                                             "q1_0", "q2_0", "pq2_0", "ptq1_0"};

/// Products on the repacked layout, one tile; x holds 16 activation rows.
void packed(const KernelTable& table, size_t format, const uint8_t* w, size_t row_bytes, size_t k,
            const float* x) {
  const PackedKernels& p = table.packed[format];
  if (!p.gemv) return;
  // Up to kTableColumns rows have product tables where the layout reads them.
  const auto activations = [&](size_t n) {
    QuantizedRows act;
    act.reserve(n, k, kIntFormatInfo[format].act_group, p.tables ? table.table_bytes : 0);
    for (size_t i = 0; i < n; ++i)
      act.fill(table, i, 0, k, x + i * k);
    return act;
  };
  AlignedBuffer<uint8_t> tile(k / kIntFormatInfo[format].group * p.group_bytes);
  AlignedBuffer<std::byte> scratch(kPackedScratchBytes);
  std::vector<float> y(16 * p.tile_rows);
  const double units = static_cast<double>(p.tile_rows * k) / 32;
  std::printf("        packed: pack %.2f", cycles([&] {
                                             p.pack(w, row_bytes, std::min<size_t>(p.tile_rows, 16),
                                                    k, tile.data());
                                           }) / units);
  const QuantizedRows single = activations(1);
  const double one = cycles([&] { p.gemv(tile.data(), p.tile_rows, k, single.rows(), y.data()); });
  std::printf("  gemv %.2f (%.2f bytes/cycle)", one / units,
              static_cast<double>(tile.size()) / one);
  for (size_t n : {size_t{2}, size_t{4}, size_t{8}, size_t{16}}) {
    const QuantizedRows act = activations(n);
    std::printf("  %zu: %.2f", n, cycles([&] {
                                    p.gemm(tile.data(), p.tile_rows, k, act.rows(), n, y.data(),
                                           p.tile_rows, scratch.data());
                                  }) / units);
  }
  std::printf("\n");
}

void int_formats(const KernelTable& table, size_t k) {
  constexpr size_t kRows = 16, kActs = 16;
  std::mt19937 rng(1);
  for (size_t f = 0; f < kIntFormats; ++f) {
    const IntFormatInfo& info = kIntFormatInfo[f];
    if (k % info.block_elems != 0) continue;
    const size_t row_bytes = k / info.block_elems * info.block_bytes;
    std::vector<uint8_t> w(row_bytes * kRows);
    for (auto& b : w)
      b = static_cast<uint8_t>(rng() & 0xBF);  // no infinite scales
    std::vector<float> x(kActs * k), y(kActs * kRows);
    for (auto& v : x)
      v = static_cast<float>(static_cast<int>(rng() % 2001) - 1000) / 500.0F;
    QuantizedRows act;
    act.reserve(kActs, k, info.act_group);
    for (size_t i = 0; i < kActs; ++i)
      act.fill(table, i, 0, k, &x[i * k]);
    const size_t cs = (k + 63) / 64 * 64, ss = (k / info.group + 7) / 8 * 8,
                 ms = info.min_group ? (k / info.min_group + 7) / 8 * 8 : 0;
    std::vector<uint8_t> codes(kRows * cs);
    std::vector<float> scales(kRows * ss), mins(kRows * ms + 1);
    const auto unpack = [&] {
      for (size_t r = 0; r < kRows; ++r)
        table.unpack[f](&w[r * row_bytes], k, &codes[r * cs], &scales[r * ss], &mins[r * ms]);
    };
    const double units = static_cast<double>(kRows * k) / 32;
    const double unpack_cycles = cycles(unpack) / units;
    const WeightTile tile = {codes.data(), scales.data(), mins.data(), cs, ss, ms, kRows, k};
    const double tile_cycles =
        cycles([&] { table.int_tile(&info, &tile, act.rows(), kActs, y.data(), kRows); }) / units /
        kActs;
    std::printf("%-7s", kNames[f]);
    if (table.int_gemv[f])
      std::printf(" gemv %6.2f (%.2f bytes/cycle)",
                  cycles([&] {
                    table.int_gemv[f](w.data(), row_bytes, kRows, k, act.rows(), y.data());
                  }) / units,
                  static_cast<double>(w.size()) / cycles([&] {
                    table.int_gemv[f](w.data(), row_bytes, kRows, k, act.rows(), y.data());
                  }));
    std::printf("  unpack %6.2f  tile %6.2f\n", unpack_cycles, tile_cycles);
    packed(table, f, w.data(), row_bytes, k, x.data());
  }
}

void float_kernels(const KernelTable& table, size_t k) {
  constexpr size_t kRows = 16;
  std::vector<float> x(kRows * k, 0.5F), w(kRows * k, 0.25F), y(kRows * kRows), out(k);
  const std::vector<uint16_t> half(kRows * k, 0x3C00);
  const double units = static_cast<double>(kRows * k) / 32, row = static_cast<double>(k) / 32;
  const auto bytes = [](const auto& v) { return reinterpret_cast<const uint8_t*>(v.data()); };
  std::printf("f32 gemv %.2f\n", cycles([&] {
                                   table.float_gemv[kFloatF32](bytes(w), k * 4, kRows, k, x.data(),
                                                               y.data());
                                 }) / units);
  std::printf("f16 gemv %.2f\n", cycles([&] {
                                   table.float_gemv[kFloatF16](bytes(half), k * 2, kRows, k,
                                                               x.data(), y.data());
                                 }) / units);
  std::printf("f32 tile %.2f\n", cycles([&] {
                                   table.float_tile(w.data(), k, kRows, k, x.data(), k, kRows,
                                                    y.data(), kRows);
                                 }) / units /
                                     kRows);
  QuantizedRows act;
  act.reserve(1, k, 32);
  std::printf("quantize %.2f\n", cycles([&] { act.fill(table, 0, 0, k, x.data()); }) / row);
  std::printf("silu     %.2f\n",
              cycles([&] { table.silu_gate(x.data(), w.data(), k, out.data()); }) / row);
  std::printf("rms_norm %.2f\n",
              cycles([&] { table.rms_norm(x.data(), w.data(), k, 1e-5F, out.data()); }) / row);
  float scores[64], max = 0, sum = 0;
  std::printf("softmax  %.2f\n", cycles([&] {
                                   for (size_t i = 0; i < 64; ++i)
                                     scores[i] = x[i];
                                   table.softmax_terms(scores, 64, &max, &sum);
                                 }) / 2);
  std::printf(
      "scores   %.2f\n",
      cycles([&] { table.attention_scores(x.data(), w.data(), 64, 64, 64, 1, scores); }) / 128);
  std::printf(
      "values   %.2f\n",
      cycles([&] { table.attention_values(x.data(), w.data(), 64, 64, 64, out.data()); }) / 128);
}

/// Signed Walsh-Hadamard transforms of the largest block up to 1024 that divides k, and of 128.
void transforms(const KernelTable& table, size_t k) {
  std::vector<float> x(k, 0.5F), y(k);
  const std::vector<uint32_t> flips(k, 0x80000000u);
  for (size_t largest : {size_t{1024}, size_t{128}}) {
    while (k % largest != 0)
      largest /= 2;
    const SignedTransform t = {k, largest, transform_factor(static_cast<int64_t>(largest)),
                               flips.data()};
    const double row = static_cast<double>(k) / 32;
    std::printf("rotate %zu: %.2f\n", largest,
                cycles([&] { table.rotate(&t, x.data(), y.data()); }) / row);
  }
}

/// Sums n bytes, a multiple of 64: as fast as one thread can read them.
uint64_t read_all(const uint8_t* p, size_t n) {
  uint64_t sum[8] = {};
  for (size_t i = 0; i < n; i += 64) {
    __builtin_prefetch(p + i + 2048);
    for (size_t j = 0; j < 8; ++j) {
      uint64_t word;
      std::memcpy(&word, p + i + 8 * j, 8);
      sum[j] += word;
    }
  }
  return sum[0] ^ sum[1] ^ sum[2] ^ sum[3] ^ sum[4] ^ sum[5] ^ sum[6] ^ sum[7];
}

void from_memory(const KernelTable& table, size_t k) {
  constexpr size_t kBytes = size_t{256} << 20, kSlice = size_t{32} << 20;
  PageBuffer memory(kBytes, PageBuffer::kHugePage);
  auto* base = reinterpret_cast<uint8_t*>(memory.data());
  uint64_t state = 1;
  for (size_t i = 0; i < kBytes; i += 8) {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    const uint64_t word = state & 0x3F3F3F3F3F3F3F3FULL;  // no infinite scales
    std::memcpy(base + i, &word, 8);
  }
  size_t at = 0;
  const auto next = [&] {
    const uint8_t* slice = base + at;
    at = (at + kSlice) % kBytes;
    return slice;
  };
  const std::vector<float> x(16 * k, 1.0F);
  AlignedBuffer<std::byte> scratch(kPackedScratchBytes);
  volatile uint64_t sink = 0;
  for (size_t f = 0; f < kIntFormats; ++f) {
    const PackedKernels& p = table.packed[f];
    if (!p.gemv || k % kIntFormatInfo[f].block_elems != 0) continue;
    const size_t tile_bytes = k / kIntFormatInfo[f].group * p.group_bytes;
    const size_t n_tiles = kSlice / tile_bytes;
    if (n_tiles == 0) continue;
    const double units = static_cast<double>(p.tile_rows * k) / 32;
    std::printf("%-7s (%.2f bytes per 32)\n", kNames[f], static_cast<double>(tile_bytes) / units);
    std::vector<float> y(16 * n_tiles * p.tile_rows);
    for (const size_t n : {size_t{1}, size_t{2}, size_t{4}, size_t{8}, size_t{16}}) {
      QuantizedRows act;
      act.reserve(n, k, kIntFormatInfo[f].act_group, p.tables ? table.table_bytes : 0);
      for (size_t i = 0; i < n; ++i)
        act.fill(table, i, 0, k, x.data());
      const auto product = [&](const uint8_t* tiles, size_t count) {
        if (n == 1)
          p.gemv(tiles, count * p.tile_rows, k, act.rows(), y.data());
        else
          p.gemm(tiles, count * p.tile_rows, k, act.rows(), n, y.data(), count * p.tile_rows,
                 scratch.data());
      };
      std::vector<double> cache, stream, alone;
      for (int round = 0; round < 9; ++round) {
        const double rate = clock_rate();
        const auto timed = [&](auto&& call) {
          const double start = now();
          call();
          return (now() - start) * rate / units;
        };
        cache.push_back(timed([&] {
                          for (int i = 0; i < 20; ++i)
                            product(base, 1);
                        }) /
                        20);
        const uint8_t* slice = next();
        alone.push_back(
            timed([&] { sink = sink ^ read_all(slice, n_tiles * tile_bytes / 64 * 64); }) /
            static_cast<double>(n_tiles));
        slice = next();
        stream.push_back(timed([&] { product(slice, n_tiles); }) / static_cast<double>(n_tiles));
      }
      const auto middle = [](std::vector<double> v) {
        std::sort(v.begin(), v.end());
        return v[v.size() / 2];
      };
      std::printf("  %2zu rows: in cache %.2f  from memory %.2f  reading alone %.2f\n", n,
                  middle(cache), middle(stream), middle(alone));
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const KernelTable& table = select_kernels(argc > 1 ? argv[1] : "auto").table;
    const size_t k = argc > 2 ? static_cast<size_t>(std::atol(argv[2])) : 1536;
    if (k < 64 || k > 1 << 20) throw InvalidArgument("K must be in 64..1048576");
    std::printf("isa %s, k = %zu, cycles per 32 elements\n", table.isa, k);
    if (argc > 3 && std::string(argv[3]) == "memory") {
      from_memory(table, k);
      return 0;
    }
    int_formats(table, k);
    float_kernels(table, k);
    transforms(table, k);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "kernel_cycles_bench: %s\n", e.what());
    return 1;
  }
  return 0;
}
