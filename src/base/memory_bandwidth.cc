#include "base/memory_bandwidth.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <fstream>

#include <fmt/format.h>
#include <sys/mman.h>

#include <tensorsharp/error.hpp>

#include "base/cpu_features.h"
#include "base/thread_pool.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace ts {
namespace {

using Loop = uint64_t (*)(const std::byte* data, size_t bytes);

/// The sums are combined so that no load can be removed; `bytes` is a multiple of 512.
template <bool Prefetch>
uint64_t read_words(const std::byte* data, size_t bytes) {
  const auto* p = reinterpret_cast<const uint64_t*>(data);
  uint64_t a = 0, b = 0, c = 0, d = 0;
  for (size_t i = 0; i < bytes / 8; i += 8) {
    if constexpr (Prefetch) __builtin_prefetch(p + i + 256, 0, 0);
    a ^= p[i] + p[i + 4];
    b ^= p[i + 1] + p[i + 5];
    c ^= p[i + 2] + p[i + 6];
    d ^= p[i + 3] + p[i + 7];
  }
  return a ^ b ^ c ^ d;
}

#if defined(__x86_64__)
template <bool Prefetch>
uint64_t read_16(const std::byte* data, size_t bytes) {
  const auto* p = reinterpret_cast<const __m128i*>(data);
  __m128i a = _mm_setzero_si128(), b = a, c = a, d = a;
  for (size_t i = 0; i < bytes / 16; i += 8) {
    if constexpr (Prefetch) {
      _mm_prefetch(reinterpret_cast<const char*>(p + i + 128), _MM_HINT_NTA);
      _mm_prefetch(reinterpret_cast<const char*>(p + i + 132), _MM_HINT_NTA);
    }
    a = _mm_xor_si128(a, _mm_add_epi64(_mm_load_si128(p + i), _mm_load_si128(p + i + 4)));
    b = _mm_xor_si128(b, _mm_add_epi64(_mm_load_si128(p + i + 1), _mm_load_si128(p + i + 5)));
    c = _mm_xor_si128(c, _mm_add_epi64(_mm_load_si128(p + i + 2), _mm_load_si128(p + i + 6)));
    d = _mm_xor_si128(d, _mm_add_epi64(_mm_load_si128(p + i + 3), _mm_load_si128(p + i + 7)));
  }
  const __m128i s = _mm_xor_si128(_mm_xor_si128(a, b), _mm_xor_si128(c, d));
  return static_cast<uint64_t>(_mm_cvtsi128_si64(_mm_xor_si128(s, _mm_srli_si128(s, 8))));
}

/// Compiled for wider vectors by attribute and called only when the CPU has them.
template <bool Prefetch>
__attribute__((target("avx2"))) uint64_t read_32(const std::byte* data, size_t bytes) {
  const auto* p = reinterpret_cast<const __m256i*>(data);
  __m256i a = _mm256_setzero_si256(), b = a, c = a, d = a;
  for (size_t i = 0; i < bytes / 32; i += 8) {
    if constexpr (Prefetch) {
      for (size_t j = 0; j < 8; j += 2)
        _mm_prefetch(reinterpret_cast<const char*>(p + i + 64 + j), _MM_HINT_NTA);
    }
    a = _mm256_xor_si256(a,
                         _mm256_add_epi64(_mm256_load_si256(p + i), _mm256_load_si256(p + i + 4)));
    b = _mm256_xor_si256(
        b, _mm256_add_epi64(_mm256_load_si256(p + i + 1), _mm256_load_si256(p + i + 5)));
    c = _mm256_xor_si256(
        c, _mm256_add_epi64(_mm256_load_si256(p + i + 2), _mm256_load_si256(p + i + 6)));
    d = _mm256_xor_si256(
        d, _mm256_add_epi64(_mm256_load_si256(p + i + 3), _mm256_load_si256(p + i + 7)));
  }
  alignas(32) uint64_t out[4];
  _mm256_store_si256(reinterpret_cast<__m256i*>(out),
                     _mm256_xor_si256(_mm256_xor_si256(a, b), _mm256_xor_si256(c, d)));
  return out[0] ^ out[1] ^ out[2] ^ out[3];
}

__attribute__((target("avx512f"))) uint64_t read_64(const std::byte* data, size_t bytes) {
  const auto* p = reinterpret_cast<const __m512i*>(data);
  __m512i a = _mm512_setzero_si512(), b = a, c = a, d = a;
  for (size_t i = 0; i < bytes / 64; i += 8) {
    a = _mm512_xor_si512(a,
                         _mm512_add_epi64(_mm512_load_si512(p + i), _mm512_load_si512(p + i + 4)));
    b = _mm512_xor_si512(
        b, _mm512_add_epi64(_mm512_load_si512(p + i + 1), _mm512_load_si512(p + i + 5)));
    c = _mm512_xor_si512(
        c, _mm512_add_epi64(_mm512_load_si512(p + i + 2), _mm512_load_si512(p + i + 6)));
    d = _mm512_xor_si512(
        d, _mm512_add_epi64(_mm512_load_si512(p + i + 3), _mm512_load_si512(p + i + 7)));
  }
  alignas(64) uint64_t out[8];
  _mm512_store_si512(out, _mm512_xor_si512(_mm512_xor_si512(a, b), _mm512_xor_si512(c, d)));
  uint64_t sum = 0;
  for (const uint64_t v : out)
    sum ^= v;
  return sum;
}
#endif

struct NamedLoop {
  const char* name;
  Loop loop;
};

std::vector<NamedLoop> loops_here() {
  std::vector<NamedLoop> loops = {{"8-byte loads", read_words<false>},
                                  {"8-byte loads, prefetch", read_words<true>}};
#if defined(__x86_64__)
  loops.push_back({"16-byte loads", read_16<false>});
  loops.push_back({"16-byte loads, prefetch", read_16<true>});
  if (cpu_features().avx2) {
    loops.push_back({"32-byte loads", read_32<false>});
    loops.push_back({"32-byte loads, prefetch", read_32<true>});
  }
  if (cpu_features().avx512f) loops.push_back({"64-byte loads", read_64});
#endif
  return loops;
}

uint64_t available_memory() {
  std::ifstream in("/proc/meminfo");
  std::string key;
  uint64_t kib = 0;
  for (std::string rest; in >> key >> kib; std::getline(in, rest)) {
    if (key == "MemAvailable:") return kib * 1024;
  }
  return uint64_t{1} << 30;
}

class Pages {
 public:
  Pages(size_t bytes, bool huge) : bytes_(bytes) {
    void* p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) throw std::bad_alloc();
    data_ = static_cast<std::byte*>(p);
    madvise(p, bytes, huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
  }
  Pages(Pages&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(other.bytes_) {}
  Pages& operator=(Pages&&) = delete;
  ~Pages() {
    if (data_) munmap(data_, bytes_);
  }
  std::byte* data() const noexcept { return data_; }

 private:
  std::byte* data_ = nullptr;
  size_t bytes_;
};

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

struct BandwidthMeter::State {
  explicit State(int n_threads) : pool(n_threads) {}
  ThreadPool pool;
  size_t bytes = 0;  ///< per thread
  size_t at = 0;     ///< where the next pass begins
  std::vector<Pages> buffers;
  Loop loop = nullptr;
  std::string name;
  int n_loops = 0;
  std::atomic<uint64_t> sink{0};

  double run(Loop with, size_t begin, size_t count) {
    const auto start = std::chrono::steady_clock::now();
    pool.run([&](int thread, int) {
      sink.fetch_xor(with(buffers[static_cast<size_t>(thread)].data() + begin, count),
                     std::memory_order_relaxed);
    });
    return static_cast<double>(count) * pool.n_threads() / seconds_since(start);
  }

  void allocate(bool huge) {
    buffers.clear();
    for (int i = 0; i < pool.n_threads(); ++i)
      buffers.emplace_back(bytes, huge);
    pool.run([&](int thread, int) {  // first touch by the thread that reads it
      std::memset(buffers[static_cast<size_t>(thread)].data(), thread + 1, bytes);
    });
  }
};

BandwidthMeter::BandwidthMeter(int n_threads, size_t bytes_per_thread, const Progress& progress)
    : state_(std::make_unique<State>(n_threads)) {
  State& s = *state_;
  constexpr size_t kUnit = size_t{2} << 20, kLeast = size_t{16} << 20;
  const uint64_t limit = available_memory() / 4 / static_cast<uint64_t>(n_threads);
  s.bytes = std::max(std::min<uint64_t>(bytes_per_thread, limit) / kUnit * kUnit, kLeast);
  const std::vector<NamedLoop> loops = loops_here();
  double best = 0;
  bool best_huge = false;
  try {
    // Ordinary pages last: they are the more likely winner, and the buffers stay.
    for (const bool huge : {true, false}) {
      s.allocate(huge);
      for (const NamedLoop& candidate : loops) {
        progress("read bandwidth", static_cast<uint64_t>(s.n_loops), 2 * loops.size());
        const double rate = s.run(candidate.loop, 0, s.bytes);
        ++s.n_loops;
        if (rate > best) {
          best = rate;
          best_huge = huge;
          s.loop = candidate.loop;
          s.name = fmt::format("{}{}", candidate.name, huge ? ", huge pages" : "");
        }
      }
    }
    if (best_huge) s.allocate(true);
  } catch (const std::bad_alloc&) {
    throw ResourceExhausted(fmt::format(
        "not enough memory to measure bandwidth ({} MiB for each of {} threads); use fewer threads",
        s.bytes >> 20, n_threads));
  }
}

BandwidthMeter::~BandwidthMeter() = default;

double BandwidthMeter::pass(size_t max_bytes) {
  State& s = *state_;
  constexpr size_t kUnit = size_t{2} << 20;
  size_t count = max_bytes == 0 ? s.bytes : std::max(max_bytes / kUnit * kUnit, kUnit);
  count = std::min(count, s.bytes);
  if (s.at + count > s.bytes) s.at = 0;
  const double rate = s.run(s.loop, s.at, count);
  s.at += count;
  return rate;
}

int BandwidthMeter::n_threads() const noexcept {
  return state_->pool.n_threads();
}
size_t BandwidthMeter::bytes_per_thread() const noexcept {
  return state_->bytes;
}
const std::string& BandwidthMeter::loop_name() const noexcept {
  return state_->name;
}
int BandwidthMeter::n_loops() const noexcept {
  return state_->n_loops;
}

std::vector<ReadBandwidth> measure_read_bandwidth(int max_threads, size_t bytes_per_thread,
                                                  const Progress& progress) {
  std::vector<ReadBandwidth> out;
  for (int n = 1;; n = std::min(2 * n, max_threads)) {
    BandwidthMeter meter(n, bytes_per_thread, progress);
    constexpr int kPasses = 7;
    std::vector<double> rates;
    for (int i = 0; i < kPasses; ++i)
      rates.push_back(meter.pass());
    std::sort(rates.begin(), rates.end());
    out.push_back({n, rates[kPasses / 2], rates.front(), rates.back(), kPasses,
                   meter.bytes_per_thread(), meter.loop_name()});
    if (n >= max_threads) return out;
  }
}

}  // namespace ts
