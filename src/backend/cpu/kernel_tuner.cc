#include "backend/cpu/kernel_tuner.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <limits>
#include <new>
#include <vector>

#include "backend/cpu/derived_rows.h"
#include "base/page_buffer.h"

namespace ts {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kBudget = std::chrono::milliseconds(150);
/// More than a core's caches hold, so that reading memory is measured as well.
constexpr size_t kSampleBytes = size_t{24} << 20;
constexpr double kLongestPass = 0.008;
constexpr double kMargin = 0.97;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// Rows of a sample come in such units: whole tiles of every layout.
constexpr size_t kUnitRows = kMostPackedRows;

class Sample {
 public:
  Sample(const KernelTable& table, ThreadPool& pool, const CpuWeight& weight)
      : pool_(pool),
        weight_(weight),
        packed_(table.packed[weight.int_format]),
        gemv_(table.int_gemv[weight.int_format]),
        group_(kIntFormatInfo[weight.int_format].group),
        activation_(nullptr, kIntFormatInfo[weight.int_format].act_group) {
    n_units_ = std::min(weight.rows, kSampleBytes / weight.row_bytes) / kUnitRows;
    std::vector<float> x(weight.cols);
    for (size_t i = 0; i < x.size(); ++i)
      x[i] = static_cast<float>(i * 2654435761U % 255) - 127.0F;
    if (packed_.tables) activation_.add_tables(table.table_bytes);
    activation_.reserve(1, weight.cols);
    for (size_t part = 0; part < activation_.n_parts(); ++part)
      activation_.fill(table, 0, part, x.data());
    y_.resize(n_units_ * kUnitRows);
  }

  /// Too small to tell anything, for the number of threads.
  bool too_small() const noexcept { return n_units_ < 4 * static_cast<size_t>(pool_.n_threads()); }

  /// Takes so few rows that a pass, which took `seconds`, becomes short.
  void shorten(double seconds) {
    if (seconds <= kLongestPass) return;
    const auto fewer = static_cast<size_t>(static_cast<double>(n_units_) * kLongestPass / seconds);
    n_units_ = std::min(n_units_, std::max(fewer, 4 * static_cast<size_t>(pool_.n_threads())));
  }

  void pack(bool huge_pages) {
    tile_bytes_ = weight_.cols / group_ * packed_.group_bytes;
    const size_t n_tiles = n_units_ * kUnitRows / packed_.tile_rows;
    tiles_ = PageBuffer(n_tiles * tile_bytes_, huge_pages ? PageBuffer::kHugePage : 0);
    pool_.parallel_for(static_cast<int64_t>(n_tiles), 1, [&](int64_t begin, int64_t end) {
      for (auto t = static_cast<size_t>(begin); t < static_cast<size_t>(end); ++t)
        packed_.pack(weight_.row(t * packed_.tile_rows), weight_.row_bytes, packed_.tile_rows,
                     weight_.cols, tile(t));
    });
  }

  double mapped_pass(size_t rows_per_piece) {
    return pass(rows_per_piece, [&](size_t first, size_t n_rows) {
      gemv_(weight_.row(first), weight_.row_bytes, n_rows, weight_.cols, activation_.quantized(),
            y_.data() + first);
    });
  }
  double packed_pass(size_t rows_per_piece) {
    return pass(rows_per_piece, [&](size_t first, size_t n_rows) {
      packed_.gemv(tile(first / packed_.tile_rows), n_rows, weight_.cols, activation_.quantized(),
                   y_.data() + first);
    });
  }

 private:
  uint8_t* tile(size_t t) noexcept {
    return reinterpret_cast<uint8_t*>(tiles_.data()) + t * tile_bytes_;
  }
  template <typename F>
  double pass(size_t rows_per_piece, F rows) {
    const auto start = Clock::now();
    pool_.parallel_for(static_cast<int64_t>(n_units_ * kUnitRows),
                       static_cast<int64_t>(rows_per_piece), [&](int64_t begin, int64_t end) {
                         rows(static_cast<size_t>(begin), static_cast<size_t>(end - begin));
                       });
    return seconds_since(start);
  }

  ThreadPool& pool_;
  const CpuWeight& weight_;
  const PackedKernels& packed_;
  void (*gemv_)(const uint8_t* w, size_t row_bytes, size_t n_rows, size_t k, const ActRow* act,
                float* y);
  const size_t group_;
  DerivedRows activation_;
  size_t n_units_ = 0, tile_bytes_ = 0;
  PageBuffer tiles_;
  std::vector<float> y_;
};

}  // namespace

std::optional<KernelChoice> measure_kernels(const KernelTable& table, ThreadPool& pool,
                                            const CpuWeight& weight, bool can_repack,
                                            bool huge_pages) try {
  const auto start = Clock::now();
  const auto in_time = [&] { return Clock::now() - start < kBudget; };
  if (!table.int_gemv[weight.int_format]) return std::nullopt;
  Sample sample(table, pool, weight);
  if (sample.too_small()) return std::nullopt;
  sample.mapped_pass(kUnitRows);  // reads the file
  sample.shorten(sample.mapped_pass(kUnitRows));

  // The best of several turns: what else the machine does only makes a pass longer.
  constexpr double kNever = std::numeric_limits<double>::infinity();
  constexpr int kTurns = 8, kFewestTurns = 3;
  KernelChoice choice;
  choice.repack = can_repack;
  if (can_repack) {
    sample.pack(huge_pages);
    double mapped = kNever, repacked = kNever;
    int turns = 0;
    for (; turns < kTurns && in_time(); ++turns) {
      mapped = std::min(mapped, sample.mapped_pass(kUnitRows));
      repacked = std::min(repacked, sample.packed_pass(kUnitRows));
    }
    if (turns < kFewestTurns) return std::nullopt;
    choice.repack = !(mapped < kMargin * repacked);
    choice.mapped_seconds = mapped;
    choice.repacked_seconds = repacked;
  }
  // Small pieces even out delays, large ones are taken less often.
  constexpr std::array<size_t, 3> kPieces = {kUnitRows, 2 * kUnitRows, 4 * kUnitRows};
  std::array<double, kPieces.size()> best;
  best.fill(kNever);
  int turns = 0;
  for (; pool.n_threads() > 1 && turns < kTurns && in_time(); ++turns) {
    for (size_t i = 0; i < kPieces.size(); ++i)
      best[i] = std::min(
          best[i], choice.repack ? sample.packed_pass(kPieces[i]) : sample.mapped_pass(kPieces[i]));
  }
  if (turns >= kFewestTurns) {
    const double fastest = *std::min_element(best.begin(), best.end());
    size_t i = 0;
    while (kMargin * best[i] > fastest)
      ++i;
    choice.rows_per_piece = kPieces[i];
    if (!can_repack) choice.mapped_seconds = best[i];
  }
  return choice;
} catch (const std::bad_alloc&) {
  return std::nullopt;
}

}  // namespace ts
