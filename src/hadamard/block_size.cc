// Which transform blocks fit a width.
#include <bit>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <tensorsharp/error.hpp>

#include "hadamard/transform.h"

namespace ts {

bool is_transform_block(int64_t block) noexcept {
  return block >= 1 && block <= kMaxTransformBlock &&
         std::has_single_bit(static_cast<uint64_t>(block));
}

std::vector<int64_t> fitting_blocks(int64_t width) {
  std::vector<int64_t> blocks;
  for (int64_t block = kMaxTransformBlock; block >= 2; block /= 2) {
    if (width > 0 && width % block == 0) blocks.push_back(block);
  }
  return blocks;
}

void require_block(int64_t width, int64_t block, std::string_view what) {
  if (!is_transform_block(block))
    throw InvalidArgument(
        fmt::format("{}: a transform block of {} is not a power of two from 1 to {}", what, block,
                    kMaxTransformBlock));
  if (width > 0 && width % block == 0) return;
  std::vector<int64_t> fits = fitting_blocks(width);
  const std::string advice = fits.empty() ? std::string("no power of two does")
                                          : fmt::format("use one of {}", fmt::join(fits, ", "));
  throw HadamardDimensionError(
      fmt::format("{}: a transform block of {} does not divide the width {}; {}", what, block,
                  width, advice),
      std::move(fits));
}

}  // namespace ts
