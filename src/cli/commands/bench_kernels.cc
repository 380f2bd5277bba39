#include "cli/commands/bench_kernels.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include <tensorsharp/error.hpp>

#include "backend/cpu/cpu_backend.h"
#include "base/cpu_topology.h"
#include "base/int8_peak.h"
#include "base/memory_bandwidth.h"
#include "cli/command.h"
#include "cli/interrupt.h"
#include "cli/plain_transforms.h"
#include "cli/text_output.h"
#include "cli/timing.h"
#include "codec/codec.h"
#include "hadamard/transform.h"
#include "kernels/kernels.h"

namespace ts::cli {
namespace {

using Clock = std::chrono::steady_clock;
using nlohmann::ordered_json;

// One of the large matrices of the 27B model; fewer rows where a type needs more bytes.
constexpr int64_t kColumns = 5120, kRows = 17408, kProductRows = 1024;
constexpr size_t kMatrixBytes = size_t{32} << 20;
// Distinct weights: no cache holds them.
constexpr size_t kWeightBytes = size_t{256} << 20;
constexpr size_t kReadBytes = size_t{48} << 20;
constexpr double kKernelSliceSeconds = 0.06, kShortSeconds = 0.02;
constexpr int kPairs = 7;

/// Bytes that every type can read as blocks: no infinite or NaN half or float among them.
std::shared_ptr<std::vector<std::byte>> legal_bytes(size_t n) {
  auto bytes = std::make_shared<std::vector<std::byte>>((n + 7) / 8 * 8);
  uint64_t state = 1;
  for (size_t i = 0; i < bytes->size(); i += 8) {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    const uint64_t word = (state ^ (state >> 29)) & 0xBFBFBFBFBFBFBFBFULL;
    std::memcpy(bytes->data() + i, &word, 8);
  }
  return bytes;
}

class KernelBench {
 public:
  KernelBench(Console& console, std::vector<const Codec*> codecs, std::vector<std::string> isas,
              int threads, bool many_rows)
      : console_(console),
        codecs_(std::move(codecs)),
        isas_(std::move(isas)),
        max_threads_(threads),
        many_rows_(many_rows),
        bytes_(legal_bytes(kWeightBytes + kMatrixBytes)) {}

  void run() {
    const Progress progress = console_.progress();
    std::vector<int> thread_counts = {1};
    if (max_threads_ > 1) thread_counts.push_back(max_threads_);
    const auto n_steps =
        static_cast<uint64_t>(thread_counts.size() * isas_.size() * codecs_.size() * 2);
    uint64_t step = 0;
    for (const int threads : thread_counts) {
      BandwidthMeter bandwidth(threads, kMeterBytes, progress);
      for (const std::string& isa : isas_) {
        Int8PeakMeter peak(threads, isa);
        for (const bool repack : {false, true}) {
          CpuBackendOptions options;
          options.n_threads = threads;
          options.isa = isa;
          options.repack = repack;
          const auto backend = make_cpu_backend(options);
          for (const Codec* codec : codecs_) {
            progress("kernels", step++, n_steps);
            if (kColumns % codec->block_elems != 0 || (repack && !repacks(options, codec->id)))
              continue;
            products(*codec, *backend, repack, bandwidth, peak);
          }
        }
      }
    }
    for (const std::string& isa : isas_)
      transforms(isa);
    console_.clear_progress();
  }

  ordered_json results = ordered_json::array();
  std::vector<std::vector<std::string>> product_rows = {
      {"type", "isa", "layout", "threads", "rows", "GB/s", "of bandwidth", "TOPS", "of int8 peak"}};
  std::vector<std::vector<std::string>> transform_rows = {
      {"transform", "isa", "length", "microseconds", "GB/s"}};

 private:
  using Weights = std::vector<std::shared_ptr<const Weight>>;

  Weights upload(const Codec& codec, Backend& backend, int64_t n_rows, size_t n_matrices) {
    Weights weights;
    const size_t bytes = codec.row_bytes(static_cast<size_t>(kColumns * n_rows));
    for (size_t i = 0; i < n_matrices; ++i) {
      TensorView view;
      view.name = "bench";
      view.type = codec.id;
      view.shape = {kColumns, n_rows};
      view.data = std::span(*bytes_).subspan(i * bytes, bytes);
      weights.push_back(backend.upload(view, bytes_, WeightUse::kMatrix));
    }
    return weights;
  }

  void products(const Codec& codec, Backend& backend, bool repack, BandwidthMeter& bandwidth,
                Int8PeakMeter& peak) {
    const size_t row_bytes = codec.row_bytes(kColumns);
    const int64_t n_rows =
        std::min<int64_t>(kRows, static_cast<int64_t>(kMatrixBytes / row_bytes) / 32 * 32);
    const size_t matrix_bytes = row_bytes * static_cast<size_t>(n_rows);
    const Weights weights = upload(codec, backend, n_rows, kWeightBytes / matrix_bytes);
    const bool plain = backend.isa() == "ref";
    const int64_t many = plain ? 16 : 512;
    const auto x = backend.allocate(static_cast<size_t>(many * kColumns), "x");
    const auto y =
        backend.allocate(static_cast<size_t>(many * std::max(n_rows, kProductRows)), "y");
    for (size_t i = 0; i < x->n_floats(); ++i)
      x->host()[i] = static_cast<float>(static_cast<int>(i * 2654435761u % 2001) - 1000) / 500.0F;

    const auto multiply = [&](Activation& act, const Weight& w, int64_t m) {
      const LinearJob job = {&w, {y.get(), 0, m, w.n_rows(), w.n_rows()}, nullptr};
      backend.linear({&job, 1}, act);
      interrupt_token().check();
    };
    const auto activation = [&](int64_t m) { return Mat{x.get(), 0, m, kColumns, kColumns}; };

    std::vector<int64_t> few = {1};
    if (many_rows_) few = {1, 2, 3, 4, 8, 16};
    for (const int64_t m : few) {
      Activation act(activation(m));
      std::vector<double> rates, shares;
      size_t next = 0;
      for (int pair = 0; pair <= kPairs; ++pair) {
        const double read = bandwidth.pass(kReadBytes / static_cast<size_t>(bandwidth.n_threads()));
        const auto start = Clock::now();
        double done = 0;
        while (seconds_since(start) < kKernelSliceSeconds) {
          act.reset(activation(m));
          multiply(act, *weights[next], m);
          done += static_cast<double>(weights[next]->bytes());
          next = (next + 1) % weights.size();
        }
        if (pair == 0) continue;  // memory touched for the first time
        rates.push_back(done / seconds_since(start));
        shares.push_back(rates.back() / read);
      }
      const double per_product = static_cast<double>(weights[0]->bytes());
      const double tops =
          2 * static_cast<double>(m * n_rows * kColumns) * median(rates) / per_product / 1e12;
      add_product(codec, backend, repack, m == 1 ? "gemv" : "gemm", m, n_rows, median(rates),
                  median(shares), tops, -1);
    }

    // Many rows: arithmetic counts, and a smaller matrix is enough.
    const int64_t some_rows = std::min(n_rows, kProductRows);
    const Weights some = upload(codec, backend, some_rows, 1);
    Activation act(activation(many));
    std::vector<double> tops, shares;
    for (int pair = 0; pair <= kPairs; ++pair) {
      const double before = peak.known() ? peak.pass(kShortSeconds) : 0;
      const auto start = Clock::now();
      double n = 0;
      for (; n == 0 || seconds_since(start) < kKernelSliceSeconds; ++n)
        multiply(act, *some[0], many);
      const double seconds = seconds_since(start);
      if (pair == 0 && !plain) continue;
      tops.push_back(2 * n * static_cast<double>(many * some_rows * kColumns) / seconds / 1e12);
      if (before > 0) shares.push_back(tops.back() * 1e12 / before);
      if (plain) break;  // seconds each
    }
    const bool integers = int_format_of(codec.id) >= 0;
    add_product(codec, backend, repack, "gemm", many, some_rows, 0, -1, median(tops),
                shares.empty() || !integers ? -1 : median(shares));
  }

  /// Negative shares are unknown.
  void add_product(const Codec& codec, const Backend& backend, bool repack, const char* op,
                   int64_t m, int64_t n, double bytes_per_second, double bandwidth_share,
                   double tops, double peak_share) {
    const std::string isa(backend.isa());
    const char* layout = repack ? "repacked" : "mapped";
    // More than all of it cannot be: another program was using the memory while it was read.
    const bool failed = bandwidth_share > 1.02;
    ordered_json row = {{"codec", codec.name},
                        {"isa", isa},
                        {"op", op},
                        {"layout", layout},
                        {"m", m},
                        {"n", n},
                        {"k", kColumns},
                        {"threads", backend.n_threads()},
                        {"bytes_per_second", nullptr},
                        {"bandwidth_share", nullptr},
                        {"tops", tops},
                        {"int8_peak_share", nullptr}};
    if (bytes_per_second > 0) row["bytes_per_second"] = bytes_per_second;
    if (bandwidth_share >= 0 && !failed) row["bandwidth_share"] = bandwidth_share;
    if (peak_share >= 0) row["int8_peak_share"] = peak_share;
    results.push_back(std::move(row));
    const auto percent = [](double share) {
      return share < 0 ? std::string() : fmt::format("{:.0f} %", 100 * share);
    };
    product_rows.push_back(
        {std::string(codec.name), isa, layout, std::to_string(backend.n_threads()),
         std::to_string(m),
         bytes_per_second > 0 ? fmt::format("{:.2f}", bytes_per_second / 1e9) : "",
         failed ? "failed measurement" : percent(bandwidth_share), fmt::format("{:.3f}", tops),
         percent(peak_share)});
  }

  /// One thread, data in the caches where they fit.
  void transforms(const std::string& isa) {
    const KernelTable& table = select_kernels(isa).table;
    for (size_t n = 32; n <= static_cast<size_t>(kMaxTransformBlock); n *= 2) {
      interrupt_token().check();
      std::vector<float> x(n), y(n), z(n);
      for (size_t i = 0; i < n; ++i)
        x[i] = static_cast<float>(i % 17) - 8;
      const std::vector<uint32_t> flips(n, 0x80000000u);
      const SignedTransform t = {n, n, transform_factor(static_cast<int64_t>(n)), flips.data()};
      add_transform("fwht", isa, n, seconds_of([&] { table.rotate(&t, x.data(), y.data()); }));
      constexpr size_t kDenseLimit = 4096;  // 64 MB of matrix
      if (n <= kDenseLimit) {
        const std::vector<float> matrix(n * n, 1.0F);
        add_transform("dense product", isa, n, seconds_of([&] {
                        table.float_gemv[kFloatF32](reinterpret_cast<const uint8_t*>(matrix.data()),
                                                    4 * n, n, n, x.data(), y.data());
                      }));
      }
      if (isa != isas_.front()) continue;  // plain code: the same for all
      PlainTransforms plain(n);
      std::vector<float> real(n / 2 + 1), imaginary(n / 2 + 1);
      add_transform("fft", "", n,
                    seconds_of([&] { plain.fourier(x.data(), real.data(), imaginary.data()); }));
      add_transform("dct", "", n, seconds_of([&] { plain.cosine(x.data(), z.data()); }));
    }
  }

  template <typename F>
  static double seconds_of(F&& call) {
    std::vector<double> samples;
    size_t repeat = 1;
    for (;; repeat *= 2) {
      const auto start = Clock::now();
      for (size_t i = 0; i < repeat; ++i)
        call();
      if (seconds_since(start) > 1e-3) break;
    }
    for (int i = 0; i < 9; ++i) {
      const auto start = Clock::now();
      for (size_t j = 0; j < repeat; ++j)
        call();
      samples.push_back(seconds_since(start) / static_cast<double>(repeat));
    }
    return median(samples);
  }

  void add_transform(const char* op, const std::string& isa, size_t n, double seconds) {
    const double rate = 8 * static_cast<double>(n) / seconds;  // read once, written once
    ordered_json row = {{"codec", nullptr},
                        {"isa", nullptr},
                        {"op", op},
                        {"layout", nullptr},
                        {"m", 1},
                        {"n", n},
                        {"k", n},
                        {"threads", 1},
                        {"seconds", seconds},
                        {"bytes_per_second", rate}};
    if (!isa.empty()) row["isa"] = isa;
    results.push_back(std::move(row));
    transform_rows.push_back({op, isa.empty() ? "plain code" : isa, std::to_string(n),
                              fmt::format("{:.3f}", seconds * 1e6),
                              fmt::format("{:.2f}", rate / 1e9)});
  }

  Console& console_;
  std::vector<const Codec*> codecs_;
  std::vector<std::string> isas_;
  int max_threads_;
  bool many_rows_;
  std::shared_ptr<std::vector<std::byte>> bytes_;
};

}  // namespace

int bench_kernels(Console& console, const KernelBenchOptions& options) {
  const auto computed = [](TypeId id) {
    return int_format_of(id) >= 0 || float_format_of(id) >= 0;
  };
  std::vector<const Codec*> codecs;
  if (options.type) {
    const Codec* codec = find_codec(*options.type);
    if (codec == nullptr || !computed(codec->id))
      throw InvalidArgument(
          fmt::format("--type: no kernel is for {}; `ts-cli info` lists them", *options.type));
    codecs.push_back(codec);
  } else {
    for (const Codec* codec : all_codecs()) {
      if (computed(codec->id)) codecs.push_back(codec);
    }
  }
  std::vector<std::string> isas;
  if (options.isa.empty() || options.isa == "auto") {
    for (const std::string_view isa : available_isas(cpu_features()))
      isas.emplace_back(isa);
  } else {
    isas.emplace_back(select_kernels(options.isa).table.isa);
  }
  const int threads = options.threads > 0 ? options.threads : default_threads().n_threads;
  KernelBench bench(console, std::move(codecs), std::move(isas), threads, options.type.has_value());
  bench.run();
  if (console.json()) {
    console.json_line({{"results", std::move(bench.results)}});
  } else {
    console.out(table(bench.product_rows, {3, 4, 5, 6, 7, 8}) + "\n" +
                table(bench.transform_rows, {2, 3, 4}));
  }
  return kSuccess;
}

}  // namespace ts::cli
