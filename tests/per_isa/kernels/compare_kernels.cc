#include "compare_kernels.h"

#include <algorithm>
#include <bit>
#include <memory>

#include <gtest/gtest.h>

#include "base/aligned_buffer.h"
#include "kernel_data.h"

namespace ts::per_isa {
namespace {

/// Equal bits, or both NaN.
bool same(float a, float b) {
  return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b) || (a != a && b != b);
}

template <typename T>
void expect_same(const std::vector<T>& got, const std::vector<T>& want, const std::string& what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  for (size_t i = 0; i < got.size(); ++i) {
    if constexpr (std::is_same_v<T, float>)
      ASSERT_TRUE(same(got[i], want[i]))
          << what << ": element " << i << ": " << got[i] << " and " << want[i];
    else
      ASSERT_EQ(got[i], want[i]) << what << ": element " << i;
  }
}

/// Widths a format accepts: one block, few, many; multiples and non-multiples of eight groups.
std::vector<size_t> widths(const IntFormatInfo& info) {
  const size_t b = info.block_elems;
  return {b, 2 * b, 3 * b, 7 * b, 9 * b, 18 * b, 33 * b};
}

struct Tile {
  std::vector<uint8_t> codes;
  std::vector<float> scales, mins;
  WeightTile tile;

  Tile(const KernelTable& table, size_t format, const std::vector<uint8_t>& rows, size_t n_rows,
       size_t k) {
    const IntFormatInfo& info = kIntFormatInfo[format];
    const auto up = [](size_t n, size_t unit) { return (n + unit - 1) / unit * unit; };
    const size_t cs = up(k, 64), ss = up(k / info.group, 8),
                 ms = info.min_group ? up(k / info.min_group, 8) : 0;
    codes.assign(n_rows * cs, 0);
    scales.assign(n_rows * ss, 0.0F);
    mins.assign(n_rows * ms, 0.0F);
    const size_t row_bytes = rows.size() / n_rows;
    for (size_t r = 0; r < n_rows; ++r)
      table.unpack[format](&rows[r * row_bytes], k, &codes[r * cs], &scales[r * ss],
                           ms ? &mins[r * ms] : nullptr);
    tile = {codes.data(), scales.data(), ms ? mins.data() : nullptr, cs, ss, ms, n_rows, k};
  }
};

const float kNan = std::nanf("");

}  // namespace

void expect_complete(const KernelTable& t, const char* isa) {
  for (size_t f = 0; f < kIntFormats; ++f)
    EXPECT_NE(t.unpack[f], nullptr) << isa << " " << int_format_name(f);
  for (size_t f = 0; f < kFloatFormats; ++f) {
    EXPECT_NE(t.to_f32[f], nullptr) << isa;
    EXPECT_NE(t.float_gemv[f], nullptr) << isa;
  }
  const bool all = t.quantize_row && t.interleave4 && t.int_tile && t.float_tile && t.rms_norm &&
                   t.add && t.silu_gate && t.gelu_gate && t.softcap && t.rope_half_split &&
                   t.rope_interleaved && t.scale && t.f32_to_f16 && t.dequantize32 &&
                   t.attention_scores && t.softmax_terms && t.attention_values && t.exp &&
                   t.scaled_add && t.sigmoid_gate && t.l2_norm && t.conv_taps && t.delta_gates &&
                   t.delta_tokens && t.delta_chunk_products && t.delta_chunk_weights &&
                   t.delta_chunk && t.rotate && t.unrotate;
  EXPECT_TRUE(all) << isa << ": an operation has no implementation";
}

void compare_products(const KernelTable& candidate, const KernelTable& reference, const char* isa) {
  for (size_t format = 0; format < kIntFormats; ++format) {
    const IntFormatInfo& info = kIntFormatInfo[format];
    for (const size_t k : widths(info)) {
      for (const size_t n_rows : {size_t{1}, size_t{5}, size_t{13}}) {
        const std::string what = std::string(isa) + " " + int_format_name(format) + " k " +
                                 std::to_string(k) + " rows " + std::to_string(n_rows);
        const std::vector<uint8_t> rows =
            random_rows(format, n_rows, k, static_cast<uint32_t>(k + n_rows));
        Tile want(reference, format, rows, n_rows, k), got(candidate, format, rows, n_rows, k);
        expect_same(got.codes, want.codes, what + " codes");
        expect_same(got.scales, want.scales, what + " scales");
        expect_same(got.mins, want.mins, what + " minimums");

        const size_t n_act = n_rows == 5 ? 6 : 3;
        ActRows act(n_act, k, info.act_group);
        for (size_t m = 0; m < n_act; ++m)
          act.fill(reference, m, random_values(k, static_cast<uint32_t>(m + 1)).data());
        const size_t stride = n_rows + 3;
        std::vector<float> y_want(n_act * stride, kNan), y_got(n_act * stride, kNan);
        reference.int_tile(&info, &want.tile, act.rows.data(), n_act, y_want.data(), stride);
        candidate.int_tile(&info, &got.tile, act.rows.data(), n_act, y_got.data(), stride);
        expect_same(y_got, y_want, what + " tile");
        for (size_t m = 0; m < n_act; ++m) {
          for (size_t r = 0; r < n_rows; ++r)
            ASSERT_FALSE(std::isnan(y_got[m * stride + r])) << what << ": not written";
        }
        if (!candidate.int_gemv[format]) continue;
        std::vector<float> one(n_rows, kNan);
        candidate.int_gemv[format](rows.data(), rows.size() / n_rows, n_rows, k, act.rows.data(),
                                   one.data());
        expect_same(one,
                    std::vector<float>(y_want.begin(), y_want.begin() + static_cast<long>(n_rows)),
                    what + " direct");
      }
    }
  }
}

namespace {

/// Rows in tiles, and products with them.
struct PackedRows {
  const PackedKernels& kernels;
  size_t n_rows, k;
  std::vector<uint8_t> tiles;

  PackedRows(const KernelTable& table, size_t format, const std::vector<uint8_t>& rows,
             size_t n_rows_, size_t k_)
      : kernels(table.packed[format]), n_rows(n_rows_), k(k_) {
    const size_t tile_bytes = k / kIntFormatInfo[format].group * kernels.group_bytes;
    const size_t n_tiles = (n_rows + kernels.tile_rows - 1) / kernels.tile_rows;
    const size_t row_bytes = rows.size() / n_rows;
    tiles.assign(n_tiles * tile_bytes, 0xA5);
    for (size_t t = 0; t < n_tiles; ++t)
      kernels.pack(&rows[t * kernels.tile_rows * row_bytes], row_bytes,
                   std::min(kernels.tile_rows, n_rows - t * kernels.tile_rows), k,
                   &tiles[t * tile_bytes]);
  }
  std::vector<float> times(const ActRows& act, size_t first, size_t n) const {
    AlignedBuffer<std::byte> scratch(kPackedScratchBytes);
    std::fill(scratch.begin(), scratch.end(), std::byte{0x5A});
    const size_t stride = n_rows + 3;
    std::vector<float> y(n * stride, kNan);
    kernels.gemm(tiles.data(), n_rows, k, &act.rows[first], n, y.data(), stride, scratch.data());
    return y;
  }
  std::vector<float> times_one(const ActRows& act, size_t row) const {
    std::vector<float> y(n_rows + 3, kNan);
    kernels.gemv(tiles.data(), n_rows, k, &act.rows[row], y.data());
    return y;
  }
};

void compare_packed_rows(const KernelTable& candidate, const KernelTable& reference, size_t format,
                         const std::vector<uint8_t>& rows, size_t n_rows, ActRows act,
                         const std::string& what) {
  const IntFormatInfo& info = kIntFormatInfo[format];
  const size_t k = act.k, n_act = act.rows.size(), stride = n_rows + 3;
  const PackedRows packed(candidate, format, rows, n_rows, k);
  const size_t tile_rows = packed.kernels.tile_rows;
  const Tile plain(reference, format, rows, n_rows, k);
  std::vector<float> want(n_act * stride, kNan);
  reference.int_tile(&info, &plain.tile, act.rows.data(), n_act, want.data(), stride);
  const auto compare_columns = [&](size_t n, const char* how) {
    if (n <= n_act)
      expect_same(packed.times(act, n_act - n, n),
                  std::vector<float>(want.end() - static_cast<long>(n * stride), want.end()),
                  what + " packed, columns " + std::to_string(n) + how);
  };
  for (const size_t n : {n_act, size_t{1}, size_t{2}, size_t{3}, size_t{4}})
    compare_columns(n, "");
  if (packed.kernels.tables) {
    act.make_tables(candidate);
    for (size_t n = 1; n <= kTableColumns; ++n)
      compare_columns(n, " by table");
  }
  for (size_t m = 0; m < std::min(n_act, size_t{2}); ++m)
    expect_same(packed.times_one(act, m),
                std::vector<float>(want.begin() + static_cast<long>(m * stride),
                                   want.begin() + static_cast<long>((m + 1) * stride)),
                what + " packed, direct");
  const size_t tile_bytes = packed.tiles.size() / ((n_rows + tile_rows - 1) / tile_rows);
  for (size_t r = 0; r<n_rows; r += n_rows> 4 ? 3 : 1) {
    std::vector<uint8_t> codes(k);
    std::vector<float> scales(k / info.group), minimums(info.min_group ? k / info.min_group : 0);
    packed.kernels.unpack_row(&packed.tiles[r / tile_rows * tile_bytes], r % tile_rows, k,
                              codes.data(), scales.data(), minimums.data());
    const auto* row = plain.tile.codes + r * plain.tile.code_stride;
    expect_same(codes, std::vector<uint8_t>(row, row + k), what + " codes read back");
    const auto* s = plain.tile.scales + r * plain.tile.scale_stride;
    expect_same(scales, std::vector<float>(s, s + k / info.group), what + " scales read back");
    if (info.min_group == 0) continue;
    const auto* m = plain.tile.mins + r * plain.tile.min_stride;
    expect_same(minimums, std::vector<float>(m, m + k / info.min_group),
                what + " minimums read back");
  }
}

}  // namespace

void compare_packed(const KernelTable& candidate, const KernelTable& reference, const char* isa) {
  for (size_t format = 0; format < kIntFormats; ++format) {
    const PackedKernels& p = candidate.packed[format];
    EXPECT_TRUE(!p.gemv == !p.gemm && !p.gemv == !p.pack && !p.gemv == !p.unpack_row &&
                !p.gemv == (p.group_bytes == 0))
        << isa << " " << int_format_name(format) << ": all of them or none";
    if (!p.gemv) continue;
    const IntFormatInfo& info = kIntFormatInfo[format];
    int first = 0, second = 0;
    half_offsets(format, &first, &second);
    std::vector<size_t> ks = widths(info);
    ks.push_back(2304);  // more than one chunk of columns, the last one short
    for (const size_t k : ks) {
      for (const size_t n_rows : {size_t{1}, size_t{16}, size_t{37}, size_t{52}}) {
        const std::string what = std::string(isa) + " " + int_format_name(format) + " k " +
                                 std::to_string(k) + " rows " + std::to_string(n_rows);
        std::vector<uint8_t> rows =
            random_rows(format, n_rows, k, static_cast<uint32_t>(k + n_rows));
        ActRows act(n_rows == 16 ? kPackedColumns + 5 : 7, k, info.act_group);
        for (size_t m = 0; m < act.rows.size(); ++m)
          act.fill(reference, m, random_values(k, static_cast<uint32_t>(m + 1)).data());
        compare_packed_rows(candidate, reference, format, rows, n_rows, act, what);
        if (n_rows != 37) continue;
        // A NaN and an infinite scale, and a NaN activation: the rows concerned are NaN.
        const size_t row_bytes = rows.size() / n_rows;
        const uint16_t nan = 0x7E01, infinity = 0xFC00;
        std::memcpy(&rows[3 * row_bytes + static_cast<size_t>(first)], &nan, 2);
        std::memcpy(
            &rows[36 * row_bytes + row_bytes - info.block_bytes + static_cast<size_t>(first)],
            &infinity, 2);
        std::vector<float> x = random_values(k, 9);
        x[k / 2] = kNan;
        act.fill(reference, 2, x.data());
        compare_packed_rows(candidate, reference, format, rows, n_rows, act, what + " not finite");
      }
    }
    // The largest sums: all activations at one end and all bytes equal, then random signs.
    for (const size_t k : {size_t{2048}, size_t{27648}}) {
      ActRows act(3, k, info.act_group);
      act.fill(reference, 0, std::vector<float>(k, 127.0F).data());
      act.fill(reference, 1, std::vector<float>(k, -127.0F).data());
      std::vector<float> signs = random_values(k, 4);
      for (float& v : signs)
        v = v < 0 ? -127.0F : 127.0F;
      act.fill(reference, 2, signs.data());
      for (const int byte : {0x00, 0xFF, 0x80, 0x7F, 0xAA, 0x55, -1}) {
        std::vector<uint8_t> rows = random_rows(format, 2, k, 11);
        for (size_t i = 0; byte >= 0 && i < rows.size(); ++i) {
          if (static_cast<int>(i % info.block_bytes) / 2 != first / 2)
            rows[i] = static_cast<uint8_t>(byte);
        }
        compare_packed_rows(
            candidate, reference, format, rows, 2, act,
            std::string(isa) + " " + int_format_name(format) + " bytes " + std::to_string(byte));
      }
    }
  }
}

void compare_extremes(const KernelTable& candidate, const KernelTable& reference, const char* isa) {
  // All activations +127 or -127 (scale 1) and all codes at either end: the sums are known.
  for (size_t format = 0; format < kIntFormats; ++format) {
    const IntFormatInfo& info = kIntFormatInfo[format];
    for (const size_t k : {size_t{4096}, size_t{27648}}) {
      ActRows act(2, k, info.act_group);
      act.fill(reference, 0, std::vector<float>(k, 127.0F).data());
      act.fill(reference, 1, std::vector<float>(k, -127.0F).data());
      ASSERT_EQ(act.rows[0].q[k - 1], 127);
      ASSERT_EQ(act.rows[1].q[0], -127);
      std::vector<int> ends = {0, info.max_code};
      if (info.max_code == 255) ends = {-128, 127, 0};
      for (const int code : ends) {
        const size_t n_groups = k / info.group;
        std::vector<uint8_t> codes(k, static_cast<uint8_t>(code));
        std::vector<float> scales((n_groups + 7) / 8 * 8, 0.0F);
        // One group counts at a time through its scale: the group's integer is seen unmixed.
        for (const size_t g : {size_t{0}, n_groups / 2, n_groups - 1}) {
          std::fill(scales.begin(), scales.end(), 0.0F);
          scales[g] = 1.0F;
          std::vector<float> mins(info.min_group ? (k / info.min_group + 7) / 8 * 8 : 0, 0.0F);
          const WeightTile tile = {codes.data(),
                                   scales.data(),
                                   mins.empty() ? nullptr : mins.data(),
                                   k,
                                   scales.size(),
                                   mins.size(),
                                   1,
                                   k};
          std::vector<float> y(2, kNan);
          candidate.int_tile(&info, &tile, act.rows.data(), 2, y.data(), 1);
          const float want =
              127.0F * static_cast<float>(info.group) * static_cast<float>(code - info.offset);
          EXPECT_EQ(y[0], want) << isa << " " << int_format_name(format) << " code " << code;
          EXPECT_EQ(y[1], -want) << isa << " " << int_format_name(format) << " code " << code;
        }
      }
      // The direct products on packed rows of equal bytes: 0x00 and 0xFF everywhere.
      for (const int byte : {0x00, 0xFF, 0x80, 0x7F}) {
        std::vector<uint8_t> row(k / info.block_elems * info.block_bytes,
                                 static_cast<uint8_t>(byte));
        int first = 0, second = 0;
        half_offsets(format, &first, &second);
        const uint16_t one_half = 0x3C00;
        for (size_t b = 0; b < row.size(); b += info.block_bytes) {
          for (const int at : {first, second}) {
            if (at >= 0) std::memcpy(&row[b + static_cast<size_t>(at)], &one_half, 2);
          }
        }
        Tile tile(reference, format, row, 1, k);
        std::vector<float> want(2, kNan), got(2, kNan), direct(1, kNan);
        reference.int_tile(&info, &tile.tile, act.rows.data(), 2, want.data(), 1);
        candidate.int_tile(&info, &tile.tile, act.rows.data(), 2, got.data(), 1);
        expect_same(got, want, std::string(isa) + " " + int_format_name(format) + " equal bytes");
        if (!candidate.int_gemv[format]) continue;
        candidate.int_gemv[format](row.data(), row.size(), 1, k, act.rows.data(), direct.data());
        EXPECT_EQ(direct[0], want[0]) << isa << " " << int_format_name(format);
        candidate.int_gemv[format](row.data(), row.size(), 1, k, act.rows.data() + 1,
                                   direct.data());
        EXPECT_EQ(direct[0], want[1]) << isa << " " << int_format_name(format);
      }
    }
  }
}

void compare_float_products(const KernelTable& candidate, const KernelTable& reference,
                            const char* isa) {
  std::mt19937 rng(5);
  for (size_t f = 0; f < kFloatFormats; ++f) {
    const size_t bytes = f == kFloatF32 ? 4 : 2;
    // Every half and bfloat16 bit pattern.
    if (bytes == 2) {
      std::vector<uint16_t> all(65536);
      for (size_t i = 0; i < all.size(); ++i)
        all[i] = static_cast<uint16_t>(i);
      std::vector<float> want(all.size()), got(all.size());
      reference.to_f32[f](reinterpret_cast<const uint8_t*>(all.data()), all.size(), want.data());
      candidate.to_f32[f](reinterpret_cast<const uint8_t*>(all.data()), all.size(), got.data());
      expect_same(got, want, std::string(isa) + " to_f32");
    }
    for (const size_t k : {1u, 7u, 8u, 15u, 16u, 23u, 24u, 64u, 172u, 257u}) {
      for (const size_t n : {1u, 3u, 4u, 9u, 17u}) {
        const std::string what = std::string(isa) + " float format " + std::to_string(f) + " k " +
                                 std::to_string(k) + " rows " + std::to_string(n);
        // An odd row pitch and an odd start: rows of files have any alignment.
        const size_t pitch = k * bytes + 1;
        std::vector<uint8_t> w(n * pitch + 1);
        for (size_t r = 0; r < n; ++r) {
          for (size_t i = 0; i < k; ++i) {
            const float value = static_cast<float>(static_cast<int32_t>(rng()) % 1000) / 512.0F;
            const uint32_t bits = std::bit_cast<uint32_t>(value);
            const uint16_t half =
                static_cast<uint16_t>(f == kFloatBF16 ? bits >> 16 : 0x3000 + rng() % 0x1000);
            std::memcpy(&w[1 + r * pitch + i * bytes],
                        bytes == 4 ? static_cast<const void*>(&bits) : &half, bytes);
          }
        }
        const std::vector<float> x = random_values(3 * (k + 2), 6);
        std::vector<float> want(n, kNan), got(n, kNan);
        reference.float_gemv[f](&w[1], pitch, n, k, x.data(), want.data());
        candidate.float_gemv[f](&w[1], pitch, n, k, x.data(), got.data());
        expect_same(got, want, what);
        if (f != kFloatF32) continue;
        const std::vector<float> rows = random_values(n * (k + 5), 7);
        want.assign(3 * (n + 1), kNan);
        got = want;
        reference.float_tile(rows.data(), k + 5, n, k, x.data(), k + 2, 3, want.data(), n + 1);
        candidate.float_tile(rows.data(), k + 5, n, k, x.data(), k + 2, 3, got.data(), n + 1);
        expect_same(got, want, what + " tile");
        want.assign(n, kNan);
        got = want;
        reference.attention_scores(x.data(), rows.data(), k + 5, n, k, 0.125F, want.data());
        candidate.attention_scores(x.data(), rows.data(), k + 5, n, k, 0.125F, got.data());
        expect_same(got, want, what + " scores");
        const std::vector<float> p = random_values(n, 8);
        want.assign(k, kNan);
        got = want;
        reference.attention_values(p.data(), rows.data(), k + 5, n, k, want.data());
        candidate.attention_values(p.data(), rows.data(), k + 5, n, k, got.data());
        expect_same(got, want, what + " values");
      }
    }
  }
}

void compare_quantizer(const KernelTable& candidate, const KernelTable& reference,
                       const char* isa) {
  for (const size_t group : {32u, 64u, 128u}) {
    for (const size_t k : {1u, 15u, 31u, 32u, 33u, 64u, 80u, 128u, 200u, 576u, 1000u}) {
      for (int kind = 0; kind < 7; ++kind) {
        std::vector<float> x =
            random_values(k, static_cast<uint32_t>(k), kind == 1 ? 1e-33F : 2.0F);
        if (kind == 2) x[k / 2] = std::nanf("");
        if (kind == 3) x[k - 1] = -INFINITY;
        if (kind == 4) std::fill(x.begin(), x.end(), 0.0F);
        if (kind == 5) x[k / 3] *= 1000.0F;
        if (kind == 6) {  // exact ties: multiples of half a step
          for (size_t i = 0; i < k; ++i)
            x[i] = static_cast<float>(static_cast<int>(i % 255) - 127) * 0.5F;
          x[0] = 127.0F;
        }
        ActRows want(1, k, group), got(1, k, group);
        want.fill(reference, 0, x.data());
        got.fill(candidate, 0, x.data());
        const std::string what = std::string(isa) + " quantize group " + std::to_string(group) +
                                 " k " + std::to_string(k) + " kind " + std::to_string(kind);
        expect_same(got.q, want.q, what);
        expect_same(got.q4, want.q4, what);
        expect_same(got.scale, want.scale, what);
        expect_same(got.isum, want.isum, what);
        expect_same(got.fsum, want.fsum, what);
        expect_same(got.scale16, want.scale16, what);
        expect_same(got.isum16, want.isum16, what);
        expect_same(got.fsum16, want.fsum16, what);
      }
    }
  }
}

void compare_transforms(const KernelTable& candidate, const KernelTable& reference,
                        const char* isa) {
  std::mt19937 rng(11);
  for (size_t block = 1; block <= 8192; block *= 2) {
    // One block, odd numbers of blocks (rows that are no whole number of vectors), several.
    for (const size_t n_blocks : {1u, 3u, 5u, 17u}) {
      const size_t n = block * n_blocks;
      std::vector<float> x = random_values(n, static_cast<uint32_t>(n), 3.0F);
      if (n_blocks == 3) {  // signed zeros, subnormal and huge values, infinities and a NaN
        for (size_t i = 0; i < n; i += 7)
          x[i] = i % 2 == 0 ? -0.0F : 0.0F;
        x[n / 2] = 1e-42F;
        x[n - 1] = 3e38F;
        if (block > 2) {
          x[0] = INFINITY;
          x[1] = std::nanf("");
        }
      }
      std::vector<uint32_t> flips(n);
      for (uint32_t& f : flips)
        f = rng() % 2 == 0 ? 0x80000000u : 0;
      const int log2 = std::countr_zero(block);
      const float factor = static_cast<float>(1.0 / std::sqrt(static_cast<double>(block)));
      for (const bool signs : {false, true}) {
        const SignedTransform t = {n, block, factor, signs ? flips.data() : nullptr};
        const std::string what = std::string(isa) + " block 2^" + std::to_string(log2) + " x " +
                                 std::to_string(n_blocks) + (signs ? " signs" : "");
        for (const bool forward : {true, false}) {
          const auto run = [&](const KernelTable& table, const float* from, float* to) {
            (forward ? table.rotate : table.unrotate)(&t, from, to);
          };
          std::vector<float> want(n + 1, 7.0F), got(n + 1, 7.0F), in_place = x;
          run(reference, x.data(), want.data());
          run(candidate, x.data(), got.data());
          run(candidate, in_place.data(), in_place.data());
          in_place.push_back(7.0F);  // as the element after the row, which nobody may touch
          expect_same(got, want, what);
          expect_same(in_place, want, what + " in place");
        }
      }
    }
  }
}

void compare_elementwise(const KernelTable& c, const KernelTable& r, const char* isa) {
  const std::string name = isa;
  for (const size_t n : {1u, 2u, 7u, 8u, 9u, 31u, 64u, 100u, 577u}) {
    std::vector<float> x = random_values(n, 1, 20.0F), y = random_values(n, 2);
    if (n > 9) {
      x[3] = 100.0F;
      x[5] = -100.0F;
      x[7] = std::nanf("");
      x[8] = INFINITY;
      x[9] = -INFINITY;
    }
    const auto both = [&](const char* what, auto&& call) {
      std::vector<float> want = x, got = x;
      call(r, want);
      call(c, got);
      expect_same(got, want, name + " " + what + " n " + std::to_string(n));
    };
    using V = std::vector<float>;
    both("add", [&](const KernelTable& t, V& v) { t.add(v.data(), y.data(), n); });
    both("scale", [&](const KernelTable& t, V& v) { t.scale(v.data(), n, 1.7F); });
    both("scaled_add",
         [&](const KernelTable& t, V& v) { t.scaled_add(v.data(), y.data(), n, 0.3F, 1.9F); });
    both("silu", [&](const KernelTable& t, V& v) { t.silu_gate(v.data(), y.data(), n, v.data()); });
    both("sigmoid gate",
         [&](const KernelTable& t, V& v) { t.sigmoid_gate(v.data(), y.data(), n, v.data()); });
    both("gelu", [&](const KernelTable& t, V& v) { t.gelu_gate(v.data(), y.data(), n, v.data()); });
    both("softcap", [&](const KernelTable& t, V& v) { t.softcap(v.data(), n, 30.0F); });
    both("rms_norm",
         [&](const KernelTable& t, V& v) { t.rms_norm(v.data(), y.data(), n, 1e-6F, v.data()); });
    both("softmax", [&](const KernelTable& t, V& v) {
      float max = kNan, sum = kNan;
      t.softmax_terms(v.data(), n, &max, &sum);
      v.push_back(max);
      v.push_back(sum);
    });
    both("exp", [&](const KernelTable& t, V& v) {
      for (float& e : v)
        e = t.exp(e);
    });
    if (n % 2 == 0) {
      both("rope half split", [&](const KernelTable& t, V& v) {
        t.rope_half_split(v.data(), y.data(), y.data() + n / 2, n / 2);
      });
      both("rope interleaved", [&](const KernelTable& t, V& v) {
        t.rope_interleaved(v.data(), y.data(), y.data() + n / 2, n / 2);
      });
    }
    std::vector<uint16_t> want16(n), got16(n);
    r.f32_to_f16(x.data(), n, want16.data());
    c.f32_to_f16(x.data(), n, got16.data());
    expect_same(got16, want16, name + " f32_to_f16");
    std::vector<int8_t> codes(n);
    for (size_t i = 0; i < n; ++i)
      codes[i] = static_cast<int8_t>(i * 37);
    both("dequantize32",
         [&](const KernelTable& t, V& v) { t.dequantize32(codes.data(), y.data(), n, v.data()); });
  }
  // Softmax without special values: the sum is a number.
  std::vector<float> scores = random_values(64, 3), again = scores;
  float max = 0, sum = 0, max_again = 0, sum_again = 0;
  r.softmax_terms(scores.data(), 64, &max, &sum);
  c.softmax_terms(again.data(), 64, &max_again, &sum_again);
  EXPECT_EQ(sum, sum_again) << name;
  EXPECT_EQ(max, max_again) << name;
}

void compare_delta_rule(const KernelTable& c, const KernelTable& r, const char* isa) {
  const std::string name = isa;
  for (const size_t dim : {1u, 3u, 8u, 16u, 33u, 128u}) {
    const std::string what = name + " head size " + std::to_string(dim);
    const size_t stride = 3 * dim + 1, n = kDeltaChunk;
    std::vector<float> rows = random_values(n * stride, 1), gates = random_values(n * 2, 2);
    const std::vector<float> bias = random_values(2, 3), scale = {-0.01F, -3.0F};
    gates[4] = 100.0F;
    gates[7] = -100.0F;
    const auto norm = [&](const KernelTable& t, std::vector<float>& v) {
      for (size_t i = 0; i < n; ++i) {
        t.l2_norm(&v[i * stride], dim, 1e-6F, 0.5F, &v[i * stride]);
        t.l2_norm(&v[i * stride + dim], dim, 1e-6F, 1.0F, &v[i * stride + dim]);
      }
    };
    std::vector<float> again = rows;
    norm(r, rows);
    norm(c, again);
    expect_same(again, rows, what + " l2 norm");
    std::vector<float> decay(n * 2), beta(n * 2), decay_again(n * 2), beta_again(n * 2);
    for (size_t i = 0; i < n; ++i) {
      r.delta_gates(&gates[2 * i], bias.data(), scale.data(), &gates[2 * i], 2, &decay[2 * i],
                    &beta[2 * i]);
      c.delta_gates(&gates[2 * i], bias.data(), scale.data(), &gates[2 * i], 2, &decay_again[2 * i],
                    &beta_again[2 * i]);
    }
    expect_same(decay_again, decay, what + " decay");
    expect_same(beta_again, beta, what + " beta");

    for (const size_t head : {0u, 1u}) {
      for (const size_t width : {1u, 13u, 32u}) {
        const auto run = [&](const KernelTable& t, bool chunk) {
          std::vector<float> out = random_values(dim * kDeltaWidth, 4);  // the state
          std::vector<float> o(n * width);
          std::vector<float> v = random_values(n * width, 5);
          DeltaTokens tokens{};
          tokens.q = rows.data();
          tokens.k = rows.data() + dim;
          tokens.v = v.data();
          tokens.o = o.data();
          tokens.log_decay = decay.data() + head;
          tokens.beta = beta.data() + head;
          tokens.n = n;
          tokens.head_dim = dim;
          tokens.width = width;
          tokens.qk_stride = stride;
          tokens.v_stride = tokens.o_stride = width;
          tokens.gate_stride = 2;
          if (chunk) {
            std::vector<float> packed(delta_packed_floats(dim)), kk(n * n), qk(n * n);
            t.delta_chunk_products(tokens.q, tokens.k, stride, dim, packed.data(), kk.data(),
                                   qk.data());
            auto weights = std::make_unique<DeltaChunkWeights>();
            t.delta_chunk_weights(kk.data(), qk.data(), tokens.log_decay, tokens.beta, 2,
                                  weights.get());
            for (size_t i = 0; i < n; ++i) {
              for (size_t s = 0; s <= i; ++s) {
                out.push_back(weights->a[i * n + s]);
                out.push_back(weights->p[i * n + s]);
              }
            }
            t.delta_chunk(out.data(), &tokens, packed.data(), weights.get());
          } else {
            t.delta_tokens(out.data(), &tokens);
          }
          out.insert(out.end(), o.begin(), o.end());
          return out;
        };
        expect_same(run(c, false), run(r, false), what + " tokens");
        expect_same(run(c, true), run(r, true), what + " chunk");
      }
    }
  }
  for (const size_t n : {1u, 7u, 8u, 100u, 513u}) {
    const std::vector<float> x = random_values(4 * n, 6), w = random_values(4 * n, 7);
    for (const size_t taps : {1u, 2u, 4u}) {
      const float* rows[4] = {&x[0], &x[n], &x[2 * n], &x[3 * n]};
      std::vector<float> want(n, kNan), got(n, kNan);
      r.conv_taps(rows, w.data(), n, taps, n, want.data());
      c.conv_taps(rows, w.data(), n, taps, n, got.data());
      expect_same(got, want, name + " convolution");
    }
  }
}

}  // namespace ts::per_isa
