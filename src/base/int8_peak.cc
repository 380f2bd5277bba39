#include "base/int8_peak.h"

#include <chrono>
#include <cstdint>

#include "base/thread_pool.h"

namespace ts {
namespace {

/// One round: n_products multiplications, and as many additions.
struct Loop {
  void (*run)(uint64_t n_rounds) = nullptr;
  double n_products = 0;
};

#if defined(__x86_64__)
// Twelve accumulators hide the latency of the additions. In assembly, so that this file needs no
// flags and the compiler adds nothing.
#define TS_ALL_XMM                                                                         \
  "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", \
      "xmm11", "xmm12", "xmm13", "xmm14", "xmm15"
#define TS_TWELVE(step) \
  step(0) step(1) step(2) step(3) step(4) step(5) step(6) step(7) step(8) step(9) step(10) step(11)
#define TS_ROUNDS(step)                                              \
  for (uint64_t i = 0; i < n_rounds; ++i)                            \
    __asm__ volatile(TS_TWELVE(step) TS_TWELVE(step)::: TS_ALL_XMM); \
  __asm__ volatile("vzeroupper" ::: TS_ALL_XMM)

#define TS_MADDUBS(i)                        \
  "vpmaddubsw %%ymm15, %%ymm14, %%ymm13\n\t" \
  "vpaddw %%ymm13, %%ymm" #i ", %%ymm" #i "\n\t"
#define TS_DPBUSD_VEX(i) "%{vex%} vpdpbusd %%ymm15, %%ymm14, %%ymm" #i "\n\t"
#define TS_DPBUSD(i) "vpdpbusd %%zmm15, %%zmm14, %%zmm" #i "\n\t"

void run_avx2(uint64_t n_rounds) {
  TS_ROUNDS(TS_MADDUBS);
}
void run_avx_vnni(uint64_t n_rounds) {
  TS_ROUNDS(TS_DPBUSD_VEX);
}
void run_avx512_vnni(uint64_t n_rounds) {
  TS_ROUNDS(TS_DPBUSD);
}
#endif

Loop loop_of(std::string_view isa) {
#if defined(__x86_64__)
  if (isa == "avx2") return {run_avx2, 24 * 32};
  if (isa == "avx_vnni") return {run_avx_vnni, 24 * 32};
  if (isa == "avx512_vnni") return {run_avx512_vnni, 24 * 64};
#endif
  (void)isa;
  return {};
}

}  // namespace

struct Int8PeakMeter::State {
  explicit State(int n_threads) : pool(n_threads) {}
  ThreadPool pool;
  Loop loop;
  double rate = 1e11;  ///< of the last pass, to choose the next one's length
};

Int8PeakMeter::Int8PeakMeter(int n_threads, std::string_view isa)
    : state_(std::make_unique<State>(n_threads)) {
  state_->loop = loop_of(isa);
  if (known()) pass(0.005);
}

Int8PeakMeter::~Int8PeakMeter() = default;

bool Int8PeakMeter::known() const noexcept {
  return state_->loop.run != nullptr;
}

double Int8PeakMeter::pass(double seconds) {
  State& s = *state_;
  const double per_round = 2 * s.loop.n_products * s.pool.n_threads();
  const auto n_rounds = static_cast<uint64_t>(seconds * s.rate / per_round) + 1;
  const auto start = std::chrono::steady_clock::now();
  s.pool.run([&](int, int) { s.loop.run(n_rounds); });
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
  s.rate = per_round * static_cast<double>(n_rounds) / elapsed.count();
  return s.rate;
}

}  // namespace ts
