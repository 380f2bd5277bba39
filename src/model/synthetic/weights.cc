#include "model/synthetic/weights.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <numeric>

#include <tensorsharp/error.hpp>

#include "base/half.h"
#include "model/synthetic/random_bits.h"

namespace ts {
namespace {

/// Types of single numbers come in units of this many.
constexpr uint32_t kPlainUnit = 64;
constexpr uint64_t kTernaryUnits = uint64_t{1} << 18;
constexpr uint64_t kOtherUnits = uint64_t{1} << 14;  // their encoders are slow
/// Rows of different matrices advance by different numbers of blocks.
constexpr uint64_t kStrides = 64;

/// Ternary codes: a byte b becomes b * 3 / 256.
void random_codes(RandomBits& bits, std::span<int8_t> codes) {
  for (size_t i = 0; i < codes.size(); i += 8) {
    uint64_t r = bits.next();
    for (size_t k = i; k < std::min(i + 8, codes.size()); ++k, r >>= 8)
      codes[k] = static_cast<int8_t>(static_cast<int>((r & 255) * 3 >> 8) - 1);
  }
}

/// Nearly normal, from the sum of four bytes (variance 21845).
void random_values(RandomBits& bits, float rms, std::span<float> values) {
  for (size_t i = 0; i < values.size(); i += 2) {
    uint64_t r = bits.next();
    for (size_t k = i; k < std::min(i + 2, values.size()); ++k, r >>= 32) {
      const auto sum =
          static_cast<int>((r & 255) + (r >> 8 & 255) + (r >> 16 & 255) + (r >> 24 & 255));
      values[k] = static_cast<float>(sum - 510) / 147.8F * rms;
    }
  }
}

float vector_value(SyntheticContent content, RandomBits& bits) {
  const float u = bits.uniform();
  switch (content) {
    case SyntheticContent::kNorm:
      return 0.9F + 0.2F * u;
    case SyntheticContent::kConvolution:
      return u - 0.5F;
    case SyntheticContent::kDecayRate:
      return -1.0F - 15.0F * u;
    case SyntheticContent::kTimeStepBias:
      return -6.9F + 4.6F * u;
    case SyntheticContent::kMatrix:
      break;
  }
  throw InternalError("a matrix has no single values");
}

}  // namespace

SyntheticWeights::SyntheticWeights(std::span<const SyntheticTensor> tensors, uint64_t seed,
                                   const Progress& progress)
    : seed_(seed) {
  // No pool is larger than the largest matrix it serves.
  std::map<std::pair<TypeId, int64_t>, uint64_t> elems;
  for (const SyntheticTensor& t : tensors) {
    if (t.content != SyntheticContent::kMatrix) continue;
    uint64_t& most = elems[{t.info.type, t.info.shape[0]}];
    most = std::max(most, static_cast<uint64_t>(t.info.shape.n_elems()));
  }
  for (const auto& [key, n] : elems) {
    const Codec& codec = require_codec(key.first, "a synthetic model");
    pools_.emplace(key, make_pool(codec, key.second, n, mix_bits(seed ^ pools_.size()), progress));
  }
}

SyntheticWeights::Pool SyntheticWeights::make_pool(const Codec& codec, int64_t width,
                                                   uint64_t n_elems, uint64_t seed,
                                                   const Progress& progress) {
  Pool pool;
  pool.unit_elems = codec.block_elems == 1
                        ? static_cast<size_t>(std::gcd(width, int64_t{kPlainUnit}))
                        : codec.block_elems;
  pool.unit_bytes = codec.row_bytes(pool.unit_elems);
  pool.n_units = std::min(std::bit_ceil(n_elems / pool.unit_elems),
                          codec.is_ternary() ? kTernaryUnits : kOtherUnits);
  const size_t row_bytes = codec.row_bytes(static_cast<size_t>(width));
  pool.bytes.resize(pool.n_units * pool.unit_bytes + row_bytes);

  RandomBits bits(seed);
  const float rms = 1.0F / std::sqrt(static_cast<float>(width));
  constexpr uint64_t kUnitsAtOnce = 1024;
  std::vector<int8_t> codes;
  std::vector<uint16_t> scales;
  std::vector<float> values;
  for (uint64_t unit = 0; unit < pool.n_units; unit += kUnitsAtOnce) {
    progress("preparing weights", unit, pool.n_units);
    const size_t n = std::min(kUnitsAtOnce, pool.n_units - unit) * pool.unit_elems;
    std::byte* const dst = pool.bytes.data() + unit * pool.unit_bytes;
    if (codec.is_ternary()) {
      codes.resize(n);
      random_codes(bits, codes);
      scales.resize(n / codec.group_elems);
      // Two thirds of the codes count.
      for (uint16_t& scale : scales)
        scale = float_to_half(rms * 1.2247F * (0.75F + 0.5F * bits.uniform()));
      codec.pack(codes.data(), scales.data(), dst, n);
    } else {
      values.resize(n);
      random_values(bits, rms, values);
      codec.encode(values.data(), dst, n);
    }
  }
  // A row that starts near the end goes on at the beginning, several times round in a small pool.
  for (size_t done = 0, ring = pool.n_units * pool.unit_bytes; done < row_bytes;) {
    const size_t n = std::min(ring, row_bytes - done);
    std::memcpy(pool.bytes.data() + ring + done, pool.bytes.data() + done, n);
    done += n;
  }
  return pool;
}

void SyntheticWeights::fill(const SyntheticTensor& tensor, int64_t first_row, int64_t n_rows,
                            std::span<std::byte> dst) const {
  const uint64_t seed = seed_of(seed_, tensor.info.name);
  const int64_t width = tensor.info.shape[0];
  if (tensor.content != SyntheticContent::kMatrix) {
    if (dst.size() != static_cast<size_t>(n_rows * width) * sizeof(float))
      throw InternalError("rows of a synthetic tensor have another size");
    for (int64_t i = 0; i < n_rows * width; ++i) {
      RandomBits bits(seed + static_cast<uint64_t>(first_row * width + i));
      const float value = vector_value(tensor.content, bits);
      std::memcpy(dst.data() + static_cast<size_t>(i) * sizeof(float), &value, sizeof(float));
    }
    return;
  }
  const Pool& pool = pools_.at({tensor.info.type, width});
  const uint64_t units = static_cast<uint64_t>(width) / pool.unit_elems;
  const size_t row_bytes = units * pool.unit_bytes;
  if (dst.size() != static_cast<size_t>(n_rows) * row_bytes)
    throw InternalError("rows of a synthetic tensor have another size");
  // An odd stride visits every block of the ring before it repeats one.
  const uint64_t stride = (units + seed % kStrides * 2) | 1;
  const uint64_t start = mix_bits(seed);
  std::byte* out = dst.data();
  for (int64_t row = first_row; row < first_row + n_rows; ++row, out += row_bytes) {
    const uint64_t unit = (start + static_cast<uint64_t>(row) * stride) & (pool.n_units - 1);
    std::memcpy(out, pool.bytes.data() + unit * pool.unit_bytes, row_bytes);
  }
}

}  // namespace ts
