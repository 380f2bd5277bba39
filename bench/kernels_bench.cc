// Speed of the integer kernels in the two ways a model uses them: `gemv` streams packed weights
// from memory for one activation row, `gemm` multiplies many rows. The share of the read bandwidth
// is the median of pairwise ratios to a plain read loop run alternately with the kernel.
//   kernels_bench [--isa NAME] [--threads N] [--n ROWS --k COLUMNS] [--m ROWS]
//                 [--mb DISTINCT_MEGABYTES] [--cpu-time] [FORMAT...]
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include <tensorsharp/error.hpp>

#include "backend/cpu/cpu_backend.h"
#include "base/cpu_topology.h"
#include "base/memory_bandwidth.h"
#include "codec/codec.h"

namespace {

/// Wall-clock seconds, or with --cpu-time the process's processor seconds (for a machine that
/// others use too; only with one thread).
bool cpu_time = false;

double now() {
  timespec t{};
  clock_gettime(cpu_time ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

double seconds_since(double start) {
  return now() - start;
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<long>(values.size() / 2),
                   values.end());
  return values[values.size() / 2];
}

struct Options {
  std::string isa;
  int threads = 0;
  int64_t n = 1536, k = 576, m = 256;
  double megabytes = 256;  ///< distinct weights, so that no cache holds them
  std::vector<std::string> formats;
};

void bench(const Options& o, const ts::Codec& codec, ts::Backend& backend,
           ts::BandwidthMeter& meter) {
  if (o.k % codec.block_elems != 0) {
    std::printf("%-8s k = %ld is not a multiple of %u\n", std::string(codec.name).c_str(), o.k,
                codec.block_elems);
    return;
  }
  const size_t matrix_bytes = codec.row_bytes(static_cast<size_t>(o.n * o.k));
  const size_t n_matrices =
      std::max<size_t>(1, static_cast<size_t>(o.megabytes * 1e6) / matrix_bytes);
  auto bytes = std::make_shared<std::vector<std::byte>>(matrix_bytes * n_matrices);
  std::mt19937_64 rng(1);
  for (size_t i = 0; i + 8 <= bytes->size(); i += 8) {
    // No infinite or NaN scale among random bytes: bit 6 of every odd byte is clear.
    const uint64_t word = rng() & 0xBFBFBFBFBFBFBFBFULL;
    std::memcpy(bytes->data() + i, &word, 8);
  }
  std::vector<std::shared_ptr<const ts::Weight>> weights;
  for (size_t i = 0; i < n_matrices; ++i) {
    ts::TensorView view;
    view.name = "bench";
    view.type = codec.id;
    view.shape = {o.k, o.n};
    view.data = std::span(*bytes).subspan(i * matrix_bytes, matrix_bytes);
    weights.push_back(backend.upload(view, bytes));
  }
  const auto x = backend.allocate(static_cast<size_t>(o.m * o.k), "x");
  const auto y = backend.allocate(static_cast<size_t>(o.m * o.n), "y");
  std::normal_distribution<float> normal;
  for (size_t i = 0; i < x->n_floats(); ++i)
    x->host()[i] = normal(rng);

  ts::Activation act;
  const auto product = [&](const ts::Weight& w, int64_t m) {
    const ts::LinearJob job = {&w, {y.get(), 0, m, o.n, o.n}, nullptr};
    backend.linear({&job, 1}, act);
  };
  act.reset({x.get(), 0, 1, o.k, o.k});
  std::vector<double> rates, shares;
  size_t next = 0;
  for (int round = 0; round < 12; ++round) {
    const size_t budget = size_t{48} << 20;
    const double read_start = now();
    meter.pass(budget / static_cast<size_t>(meter.n_threads()));
    const double before = static_cast<double>(budget) / seconds_since(read_start);
    const auto start = now();
    size_t done = 0;
    for (; done < budget; done += matrix_bytes, next = (next + 1) % n_matrices)
      product(*weights[next], 1);
    const double rate = static_cast<double>(done) / seconds_since(start);
    if (round < 2) continue;  // first touch, clock ramp
    rates.push_back(rate);
    shares.push_back(rate / before);
  }
  act.reset({x.get(), 0, o.m, o.k, o.k});
  std::vector<double> gemm;
  for (int round = 0; round < 7; ++round) {
    const auto start = now();
    int done = 0;
    for (; done < 3 || seconds_since(start) < 0.1; ++done)
      product(*weights[static_cast<size_t>(done) % n_matrices], o.m);
    gemm.push_back(static_cast<double>(o.m * o.n * o.k) * done / seconds_since(start));
  }
  const double weights_per_second = median(rates) / codec.bits_per_weight() * 8;
  std::printf(
      "%-8s %-16s gemv %6.2f GB/s  %6.2f Gweights/s  share %.2f   gemm(m=%ld) %7.2f GMAC/s\n",
      std::string(codec.name).c_str(), std::string(weights[0]->kernel()).c_str(),
      median(rates) / 1e9, weights_per_second / 1e9, median(shares), o.m, median(gemm) / 1e9);
  std::fflush(stdout);
}

Options parse(int argc, char** argv) {
  Options o;
  for (int i = 1; i < argc; ++i) {
    const std::string arg = argv[i];
    const auto value = [&]() -> const char* {
      if (i + 1 >= argc) throw ts::InvalidArgument(arg + " needs a value");
      return argv[++i];
    };
    if (arg == "--isa")
      o.isa = value();
    else if (arg == "--threads")
      o.threads = std::atoi(value());
    else if (arg == "--cpu-time")
      cpu_time = true;
    else if (arg == "--mb")
      o.megabytes = std::atof(value());
    else if (arg == "--n")
      o.n = std::atol(value());
    else if (arg == "--k")
      o.k = std::atol(value());
    else if (arg == "--m")
      o.m = std::atol(value());
    else
      o.formats.push_back(arg);
  }
  if (cpu_time) o.threads = 1;
  if (o.formats.empty()) o.formats = {"q4_1", "q8_0", "f16"};
  return o;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const Options o = parse(argc, argv);
    ts::CpuBackendOptions options;
    options.isa = o.isa;
    options.n_threads = o.threads;
    const auto backend = ts::make_cpu_backend(options);
    ts::BandwidthMeter meter(backend->n_threads(), size_t{256} << 20);
    std::printf("isa %s, %d threads, read %.1f GB/s (%s), weights %ld x %ld\n",
                std::string(backend->isa()).c_str(), backend->n_threads(), meter.pass() / 1e9,
                meter.loop_name().c_str(), o.n, o.k);
    for (const std::string& name : o.formats) {
      const ts::Codec* codec = ts::find_codec(name);
      if (!codec) throw ts::InvalidArgument("unknown format " + name);
      bench(o, *codec, *backend, meter);
    }
  } catch (const std::exception& e) {
    std::fprintf(stderr, "kernels_bench: %s\n", e.what());
    return 1;
  }
  return 0;
}
