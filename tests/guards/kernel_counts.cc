// Runs kernels on small fixed inputs under callgrind and has it write the instructions of each one
// alone: `valgrind --tool=callgrind --callgrind-out-file=F kernel_counts` leaves F.1, F.2, ...,
// each naming its case, e.g. "avx2 PQ2_0 packed_gemv", in the line "desc: Trigger:". The number of
// weights (or elements) of a case is printed.
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include <valgrind/callgrind.h>

#include "../per_isa/kernels/kernel_data.h"
#include "kernels/kernels.h"

namespace ts {
namespace {

constexpr size_t kColumns = 2048, kRows = kMostPackedRows, kActivations = 8;

template <typename F>
void count(const std::string& name, size_t n_elements, F&& run) {
  run();  // what happens only once (lazy binding) is not counted
  CALLGRIND_ZERO_STATS;
  run();
  CALLGRIND_DUMP_STATS_AT(name.c_str());
  std::printf("%s: %zu\n", name.c_str(), n_elements);
}

void count_format(const KernelTable& table, const std::string& isa, size_t format) {
  const IntFormatInfo& info = kIntFormatInfo[format];
  const std::string name = isa + " " + per_isa::int_format_name(format) + " ";
  const std::vector<uint8_t> w = per_isa::random_rows(format, kRows, kColumns, 1);
  const size_t row_bytes = w.size() / kRows;
  per_isa::ActRows rows(kActivations, kColumns, info.act_group);
  for (size_t m = 0; m < kActivations; ++m)
    rows.fill(table, m, per_isa::random_values(kColumns, static_cast<uint32_t>(m) + 2).data());
  const ActRow* act = rows.rows.data();
  std::vector<float> y(kRows * kActivations);
  constexpr size_t kWeights = kRows * kColumns;

  if (table.int_gemv[format]) {
    count(name + "gemv", kWeights,
          [&] { table.int_gemv[format](w.data(), row_bytes, kRows, kColumns, act, y.data()); });
  }
  std::vector<uint8_t> codes(kWeights + 64);
  std::vector<float> scales(kWeights / 16 + 64), mins(kWeights / 16 + 64);
  const size_t n_scales = kColumns / info.group;
  const size_t n_mins = info.min_group ? kColumns / info.min_group : 0;
  count(name + "unpack", kWeights, [&] {
    for (size_t r = 0; r < kRows; ++r)
      table.unpack[format](w.data() + r * row_bytes, kColumns, codes.data() + r * kColumns,
                           scales.data() + r * n_scales, mins.data() + r * n_mins);
  });
  const WeightTile tile = {codes.data(), scales.data(), n_mins ? mins.data() : nullptr,
                           kColumns,     n_scales,      n_mins,
                           kRows,        kColumns};
  count(name + "tile", kWeights * kActivations,
        [&] { table.int_tile(&info, &tile, act, kActivations, y.data(), kRows); });

  const PackedKernels& packed = table.packed[format];
  if (!packed.pack) return;
  const size_t tile_bytes = kColumns / info.group * packed.group_bytes;
  std::vector<uint8_t> tiles(kRows / packed.tile_rows * tile_bytes);
  count(name + "pack", kWeights, [&] {
    for (size_t r = 0; r < kRows; r += packed.tile_rows)
      packed.pack(w.data() + r * row_bytes, row_bytes, packed.tile_rows, kColumns,
                  tiles.data() + r / packed.tile_rows * tile_bytes);
  });
  if (packed.tables) {
    rows.make_tables(table);
    count(name + "tables", kColumns,
          [&] { table.make_tables(rows.rows[0].q, kColumns, rows.tables.data()); });
    act = rows.rows.data();
  }
  count(name + "packed_gemv", kWeights,
        [&] { packed.gemv(tiles.data(), kRows, kColumns, act, y.data()); });
  std::vector<uint8_t> memory(kPackedScratchBytes + 64);
  void* scratch = memory.data() + (64 - reinterpret_cast<uintptr_t>(memory.data()) % 64) % 64;
  count(name + "packed_gemm2", kWeights * 2,
        [&] { packed.gemm(tiles.data(), kRows, kColumns, act, 2, y.data(), kRows, scratch); });
  count(name + "packed_gemm", kWeights * kActivations, [&] {
    packed.gemm(tiles.data(), kRows, kColumns, act, kActivations, y.data(), kRows, scratch);
  });
}

void count_isa(const char* isa) {
  const KernelTable& table = select_kernels(isa).table;
  for (const size_t format : {kIntPQ2_0, kIntPTQ1_0, kIntQ2_0, kIntTQ2_0, kIntTQ1_0, kIntQ8_0,
                              kIntQ4_0, kIntQ4_1, kIntQ4_K, kIntQ6_K})
    count_format(table, isa, format);
  const std::vector<float> x = per_isa::random_values(kColumns, 1);
  std::vector<float> y(kColumns);
  const SignedTransform transform = {kColumns, 1024, 1.0F / 32, nullptr};
  const std::string name = std::string(isa) + " ";
  count(name + "rotate", kColumns, [&] { table.rotate(&transform, x.data(), y.data()); });
  for (const size_t group : {32, 128}) {
    per_isa::ActRows row(1, kColumns, group);
    count(name + "quantize_" + std::to_string(group), kColumns,
          [&] { row.fill(table, 0, x.data()); });
  }
}

}  // namespace
}  // namespace ts

int main() {
  const auto available = ts::available_isas(ts::cpu_features());
  for (const char* isa : {"ref", "avx2"}) {
    for (const std::string_view name : available) {
      if (name == isa) ts::count_isa(isa);
    }
  }
}
