/// Random inputs for kernel comparisons.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "kernels/kernel_table.h"

namespace ts::per_isa {

inline const char* int_format_name(size_t format) {
  constexpr const char* kNames[kIntFormats] = {"Q4_0", "Q4_1", "Q5_0",  "Q5_1",  "Q8_0",  "Q2_K",
                                               "Q3_K", "Q4_K", "Q5_K",  "Q6_K",  "TQ1_0", "TQ2_0",
                                               "Q1_0", "Q2_0", "PQ2_0", "PTQ1_0"};
  return kNames[format];
}

/// Byte offsets of the f16 fields of a block (-1 = none).
inline void half_offsets(size_t format, int* first, int* second) {
  constexpr int kOffsets[kIntFormats][2] = {
      {0, -1}, {0, 2},    {0, -1},  {0, 2},   {0, -1}, {80, 82}, {108, -1}, {0, 2},
      {0, 2},  {208, -1}, {52, -1}, {64, -1}, {0, -1}, {0, -1},  {0, -1},   {26, -1}};
  *first = kOffsets[format][0];
  *second = kOffsets[format][1];
}

/// Rows of random blocks: every bit pattern of codes, scales of moderate size and either sign. In
/// Q1_0 and the base-3 formats every byte is legal too.
inline std::vector<uint8_t> random_rows(size_t format, size_t n_rows, size_t k, uint32_t seed) {
  const IntFormatInfo& info = kIntFormatInfo[format];
  std::mt19937 rng(seed);
  std::vector<uint8_t> out(n_rows * (k / info.block_elems) * info.block_bytes);
  for (auto& b : out)
    b = static_cast<uint8_t>(rng());
  int first = 0, second = 0;
  half_offsets(format, &first, &second);
  for (size_t b = 0; b < out.size(); b += info.block_bytes) {
    for (const int at : {first, second}) {
      if (at < 0) continue;
      const uint16_t half =
          static_cast<uint16_t>(0x1000 + rng() % 0x1800 + (rng() % 2 ? 0x8000 : 0));
      std::memcpy(&out[b + static_cast<size_t>(at)], &half, 2);
    }
  }
  return out;
}

inline std::vector<float> random_values(size_t n, uint32_t seed, float deviation = 1.0F) {
  std::mt19937 rng(seed);
  std::normal_distribution<float> normal(0.0F, deviation);
  std::vector<float> out(n);
  for (float& v : out)
    v = normal(rng);
  return out;
}

/// Quantized activation rows with memory of their own; NaN and -1 where nothing was written.
struct ActRows {
  size_t k, group;
  std::vector<int8_t> q, q4, tables;
  std::vector<float> scale, fsum, scale16, fsum16;
  std::vector<int32_t> isum, isum16;
  std::vector<ActRow> rows;

  ActRows(size_t n_rows, size_t k_, size_t group_) : k(k_), group(group_) {
    const size_t codes = (k + 63) / 64 * 64 + 64;
    const size_t groups = ((k + group - 1) / group + 15) / 8 * 8;
    const size_t parts = group == 32 ? ((k + 31) / 32 * 2 + 15) / 8 * 8 : 0;
    q.assign(n_rows * codes, 0);
    q4.assign(group == 128 ? n_rows * codes : 0, 0);
    scale.assign(n_rows * groups, 0);
    fsum = scale;
    isum.assign(n_rows * groups, 0);
    scale16.assign(n_rows * parts, 0);
    fsum16 = scale16;
    isum16.assign(n_rows * parts, 0);
    for (size_t r = 0; r < n_rows; ++r)
      rows.push_back({&q[r * codes], &scale[r * groups], &isum[r * groups], &fsum[r * groups],
                      parts ? &scale16[r * parts] : nullptr, parts ? &isum16[r * parts] : nullptr,
                      parts ? &fsum16[r * parts] : nullptr, group == 128 ? &q4[r * codes] : nullptr,
                      nullptr});
  }
  /// Product tables of all rows, as `table` makes them.
  void make_tables(const KernelTable& table) {
    const size_t bytes = k / 128 * table.table_bytes;
    tables.assign(rows.size() * bytes, 0x55);
    for (size_t r = 0; r < rows.size(); ++r) {
      table.make_tables(rows[r].q, k, &tables[r * bytes]);
      rows[r].tables = &tables[r * bytes];
    }
  }
  void fill(const KernelTable& table, size_t row, const float* x) {
    const ActRow& r = rows[row];
    const ActRowOut out = {const_cast<int8_t*>(r.q),      const_cast<float*>(r.scale),
                           const_cast<int32_t*>(r.isum),  const_cast<float*>(r.fsum),
                           const_cast<float*>(r.scale16), const_cast<int32_t*>(r.isum16),
                           const_cast<float*>(r.fsum16)};
    table.quantize_row(x, k, group, &out);
    if (r.q4) table.interleave4(r.q, k, const_cast<int8_t*>(r.q4));
  }
};

}  // namespace ts::per_isa
