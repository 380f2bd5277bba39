/// Checks of packed rows against their values, for `verify` and for conversions that must not lose
/// anything. Driven by the codec rows alone.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "codec/block_finding.h"
#include "codec/codec.h"

namespace ts {

/// One kind of finding over a range of blocks.
struct FindingCount {
  uint64_t n_blocks = 0;     ///< blocks that show it
  uint64_t first_block = 0;  ///< the first of them; meaningful when n_blocks > 0
};

/// Sum of the findings of many blocks.
struct BlockReport {
  uint64_t n_blocks = 0;
  std::array<FindingCount, 32> by_bit{};  ///< index = bit number of a BlockFinding

  const FindingCount& count(BlockFinding finding) const noexcept;
  /// True when some block shows a fault (kFindingFaults).
  bool has_faults() const noexcept;
  /// Every block equals what encoding its decoded values gives.
  bool canonical() const noexcept { return count(kFindingNotCanonical).n_blocks == 0; }
  /// Adds the report of a later range, whose blocks were numbered from 0 in their own range.
  void append(const BlockReport& later) noexcept;
};

/// The findings of one block: Codec::inspect, plus decoding and encoding again.
uint32_t check_block(const Codec& codec, const std::byte* block) noexcept;
/// blocks: a whole number of blocks of `codec` (a rest is ignored).
BlockReport check_blocks(const Codec& codec, std::span<const std::byte> blocks) noexcept;

/// A few words for one finding, e.g. "non-finite scale".
std::string_view finding_text(BlockFinding finding) noexcept;
/// The findings worth a line each, faults first, with counts and first blocks; empty when clean.
std::string describe(const BlockReport& report);

/// The first value that encoding and decoding would change; -0 and 0 count as equal, a NaN always
/// changes. Nothing when the codec holds the row exactly. row.size() must be a multiple of the
/// block; a codec without an encoder changes every value.
std::optional<size_t> first_inexact(const Codec& codec, std::span<const float> row) noexcept;
/// True when the codec holds the row exactly. With a ternary codec: each group is -s, 0, +s with an
/// f16 s.
bool represents_exactly(const Codec& codec, std::span<const float> row) noexcept;

/// Encodes a row with checked input. `what` names the tensor (and file) for messages. Throws
/// Unsupported when the codec is read-only; InvalidArgument when the length is not a multiple of
/// the block, dst is not row_bytes() long, a value is not finite, or a scale overflows binary16.
void encode_row(const Codec& codec, std::span<const float> row, std::span<std::byte> dst,
                std::string_view what);

}  // namespace ts
