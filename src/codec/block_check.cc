#include "codec/block_check.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include <fmt/format.h>

#include <tensorsharp/error.hpp>

namespace ts {
namespace {

struct FindingRow {
  BlockFinding finding;
  std::string_view text;
};

// Faults first: describe() lists them in this order.
constexpr FindingRow kFindings[] = {
    {kFindingNonFiniteScale, "non-finite scale"},
    {kFindingNonFiniteValue, "non-finite value"},
    {kFindingIllegalByte, "byte that holds no list of digits"},
    {kFindingNegativeScale, "negative scale"},
    {kFindingScaleOnZeros, "scale on a group of zeros"},
    {kFindingCodesOnZeroScale, "non-zero codes under a zero scale"},
    {kFindingCodePlusTwo, "code for +2 scales"},
    {kFindingNotCanonical, "bytes an encoder would write otherwise"},
};

constexpr size_t bit_number(BlockFinding finding) noexcept {
  return static_cast<size_t>(std::countr_zero(static_cast<uint32_t>(finding)));
}

bool all_finite(const float* x, size_t n) noexcept {
  // A sum of zeros times the values is NaN as soon as one of them is not finite.
  float probe = 0.0f;
  for (size_t i = 0; i < n; ++i)
    probe += 0.0f * x[i];
  return probe == 0.0f;
}

/// Elements handled at a time: whole blocks, at most kMaxBlockElems.
size_t chunk_elems(const Codec& codec) noexcept {
  return kMaxBlockElems / codec.block_elems * codec.block_elems;
}

// A chunk of one-value blocks may take more bytes than one block may.
constexpr size_t kChunkBytes = size_t{8} * kMaxBlockElems;

}  // namespace

const FindingCount& BlockReport::count(BlockFinding finding) const noexcept {
  return by_bit[bit_number(finding)];
}

bool BlockReport::has_faults() const noexcept {
  for (const FindingRow& row : kFindings) {
    if ((row.finding & kFindingFaults) != 0 && count(row.finding).n_blocks > 0) return true;
  }
  return false;
}

void BlockReport::append(const BlockReport& later) noexcept {
  for (size_t bit = 0; bit < by_bit.size(); ++bit) {
    const FindingCount& other = later.by_bit[bit];
    if (by_bit[bit].n_blocks == 0) by_bit[bit].first_block = n_blocks + other.first_block;
    by_bit[bit].n_blocks += other.n_blocks;
  }
  n_blocks += later.n_blocks;
}

uint32_t check_block(const Codec& codec, const std::byte* block) noexcept {
  uint32_t found = codec.inspect != nullptr ? codec.inspect(block) : uint32_t{kFindingNone};
  if (codec.is_ternary() && found == kFindingNone) return found;  // see Codec::inspect
  std::array<float, kMaxBlockElems> values;
  codec.decode(block, values.data(), codec.block_elems);
  if (!all_finite(values.data(), codec.block_elems)) return found | kFindingNonFiniteValue;
  if (codec.encode != nullptr) {
    std::array<std::byte, kMaxBlockBytes> again;
    codec.encode(values.data(), again.data(), codec.block_elems);
    if (std::memcmp(again.data(), block, codec.block_bytes) != 0) found |= kFindingNotCanonical;
  }
  return found;
}

BlockReport check_blocks(const Codec& codec, std::span<const std::byte> blocks) noexcept {
  BlockReport report;
  report.n_blocks = blocks.size() / codec.block_bytes;
  for (uint64_t b = 0; b < report.n_blocks; ++b) {
    uint32_t found = check_block(codec, blocks.data() + b * codec.block_bytes);
    while (found != 0) {
      FindingCount& count = report.by_bit[static_cast<size_t>(std::countr_zero(found))];
      if (count.n_blocks++ == 0) count.first_block = b;
      found &= found - 1;
    }
  }
  return report;
}

std::string_view finding_text(BlockFinding finding) noexcept {
  for (const FindingRow& row : kFindings) {
    if (row.finding == finding) return row.text;
  }
  return "no finding";
}

std::string describe(const BlockReport& report) {
  std::string out;
  for (const FindingRow& row : kFindings) {
    const FindingCount& count = report.count(row.finding);
    if (count.n_blocks == 0) continue;
    out += fmt::format("{}{}: {} of {} blocks, first in block {}", out.empty() ? "" : "\n",
                       row.text, count.n_blocks, report.n_blocks, count.first_block);
  }
  return out;
}

std::optional<size_t> first_inexact(const Codec& codec, std::span<const float> row) noexcept {
  if (row.empty()) return std::nullopt;
  if (codec.encode == nullptr) return 0;
  std::array<std::byte, kChunkBytes> packed;
  std::array<float, kMaxBlockElems> back;
  const size_t step = chunk_elems(codec);
  for (size_t start = 0; start < row.size(); start += step) {
    const size_t n = std::min(step, row.size() - start);
    codec.encode(row.data() + start, packed.data(), n);
    codec.decode(packed.data(), back.data(), n);
    for (size_t i = 0; i < n; ++i) {
      if (!(row[start + i] == back[i])) return start + i;  // -0 == 0; a NaN equals nothing
    }
  }
  return std::nullopt;
}

bool represents_exactly(const Codec& codec, std::span<const float> row) noexcept {
  return !first_inexact(codec, row).has_value();
}

void encode_row(const Codec& codec, std::span<const float> row, std::span<std::byte> dst,
                std::string_view what) {
  if (codec.encode == nullptr)
    throw Unsupported(fmt::format("{}: type {} can be read but not written; choose another type",
                                  what, codec.name));
  if (row.size() % codec.block_elems != 0)
    throw InvalidArgument(
        fmt::format("{}: row of {} values is not a multiple of {}, the block of {}; choose a type "
                    "with a smaller block",
                    what, row.size(), codec.block_elems, codec.name));
  if (dst.size() != codec.row_bytes(row.size()))
    throw InvalidArgument(fmt::format("{}: {} bytes for a row of {} values of {}, expected {}",
                                      what, dst.size(), row.size(), codec.name,
                                      codec.row_bytes(row.size())));
  for (size_t i = 0; i < row.size(); ++i) {
    if (!std::isfinite(row[i]))
      throw InvalidArgument(fmt::format(
          "{}: value {} of the row is {}, expected a finite number; repair the source weights",
          what, i, row[i]));
  }
  codec.encode(row.data(), dst.data(), row.size());
  std::array<float, kMaxBlockElems> back;
  const size_t step = chunk_elems(codec);
  for (size_t start = 0; start < row.size(); start += step) {
    const size_t n = std::min(step, row.size() - start);
    codec.decode(dst.data() + codec.row_bytes(start), back.data(), n);
    if (!all_finite(back.data(), n))
      throw InvalidArgument(fmt::format(
          "{}: values {}..{} of the row are too large for the 16-bit numbers of {}; use "
          "BF16 or F32",
          what, start, start + n - 1, codec.name));
  }
}

}  // namespace ts
