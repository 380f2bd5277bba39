// Values of safetensors tensors as f32.

#include <array>
#include <bit>
#include <cstring>
#include <limits>

#include <fmt/format.h>

#include <tensorsharp/error.hpp>

#include "base/half.h"
#include "base/quote_text.h"
#include "format/safetensors.h"
#include "format/safetensors_header.h"

namespace ts {
namespace {

/// 8-bit floats: sign, `exponent_bits`, the rest mantissa; subnormals as in IEEE 754.
/// E5M2 keeps the IEEE infinities and NaNs. E4M3 ("fn") has no infinity, and of its top exponent
/// only the all-ones mantissa is NaN. (Micikevicius et al., "FP8 formats for deep learning", 2022.)
constexpr std::array<float, 256> make_f8_table(int exponent_bits) {
  const int mantissa_bits = 7 - exponent_bits;
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const int top = (1 << exponent_bits) - 1;
  std::array<float, 256> table{};
  for (int code = 0; code < 256; ++code) {
    const int exponent = (code >> mantissa_bits) & top;
    const int mantissa = code & ((1 << mantissa_bits) - 1);
    float value = 0;
    if (exponent_bits == 5 && exponent == top) {
      value = mantissa == 0 ? std::numeric_limits<float>::infinity()
                            : std::numeric_limits<float>::quiet_NaN();
    } else if (exponent_bits == 4 && (code & 0x7F) == 0x7F) {
      value = std::numeric_limits<float>::quiet_NaN();
    } else {
      // significand * 2^power with an integer significand; exact in f32.
      const int significand = exponent == 0 ? mantissa : mantissa + (1 << mantissa_bits);
      const int power = (exponent == 0 ? 1 : exponent) - bias - mantissa_bits;
      value = static_cast<float>(significand);
      for (int i = 0; i < power; ++i)
        value *= 2.0F;
      for (int i = 0; i > power; --i)
        value *= 0.5F;
    }
    table[static_cast<size_t>(code)] = (code & 0x80) != 0 ? -value : value;
  }
  return table;
}

constexpr auto kE4M3 = make_f8_table(4);
constexpr auto kE5M2 = make_f8_table(5);

/// Loads `dst.size()` packed elements of type T, of any alignment.
template <typename T, typename Convert>
void convert_all(const std::byte* src, std::span<float> dst, Convert convert) {
  for (size_t i = 0; i < dst.size(); ++i) {
    T value;
    std::memcpy(&value, src + i * sizeof(T), sizeof(T));
    dst[i] = convert(value);
  }
}

template <typename T>
void convert_numbers(const std::byte* src, std::span<float> dst) {
  convert_all<T>(src, dst, [](T v) { return static_cast<float>(v); });
}

/// A double beyond f32 becomes an infinity, as rounding to nearest says.
float narrow(double v) {
  if (v > 0x1.ffffffp127) return std::numeric_limits<float>::infinity();
  if (v < -0x1.ffffffp127) return -std::numeric_limits<float>::infinity();
  return static_cast<float>(v);
}

}  // namespace

int64_t SafetensorsEntry::n_elems() const noexcept {
  int64_t total = 1;
  for (const int64_t extent : shape)
    total *= extent;
  return total;
}

void Safetensors::read_f32(const SafetensorsEntry& entry, int64_t begin, std::span<float> dst) {
  const std::string& dtype = entry.dtype;
  const int64_t n_elems = entry.n_elems();
  if (begin < 0 || begin > n_elems || dst.size() > static_cast<uint64_t>(n_elems - begin)) {
    throw InvalidArgument(fmt::format("{}: tensor {}: elements {} to {} are asked of {}",
                                      entry.file.string(), quote_text(entry.name), begin,
                                      static_cast<uint64_t>(begin) + dst.size(), n_elems));
  }
  const auto at = [&](size_t element_bytes) {
    return entry.data.data() + static_cast<size_t>(begin) * element_bytes;
  };
  if (dtype == "F32") return convert_numbers<float>(at(4), dst);
  if (dtype == "BF16") return convert_all<uint16_t>(at(2), dst, bf16_to_float);
  if (dtype == "F16") return convert_all<uint16_t>(at(2), dst, half_to_float);
  if (dtype == "F64") return convert_all<double>(at(8), dst, narrow);
  if (dtype == "F8_E4M3") {
    return convert_all<uint8_t>(at(1), dst, [](uint8_t v) { return kE4M3[v]; });
  }
  if (dtype == "F8_E5M2") {
    return convert_all<uint8_t>(at(1), dst, [](uint8_t v) { return kE5M2[v]; });
  }
  if (dtype == "F8_E8M0") {  // 2^(v - 127); the smallest is subnormal in f32
    return convert_all<uint8_t>(at(1), dst, [](uint8_t v) {
      if (v == 0xFF) return std::numeric_limits<float>::quiet_NaN();
      return std::bit_cast<float>(v == 0 ? 0x00400000u : static_cast<uint32_t>(v) << 23);
    });
  }
  if (dtype == "I64") return convert_numbers<int64_t>(at(8), dst);
  if (dtype == "U64") return convert_numbers<uint64_t>(at(8), dst);
  if (dtype == "I32") return convert_numbers<int32_t>(at(4), dst);
  if (dtype == "U32") return convert_numbers<uint32_t>(at(4), dst);
  if (dtype == "I16") return convert_numbers<int16_t>(at(2), dst);
  if (dtype == "U16") return convert_numbers<uint16_t>(at(2), dst);
  if (dtype == "I8") return convert_numbers<int8_t>(at(1), dst);
  if (dtype == "U8") return convert_numbers<uint8_t>(at(1), dst);
  if (dtype == "BOOL") {
    return convert_all<uint8_t>(at(1), dst, [](uint8_t v) { return v != 0 ? 1.0F : 0.0F; });
  }
  throw Unsupported(fmt::format(
      "{}: tensor {} has dtype {}, which is {}; use a checkpoint in BF16, F16 or F32",
      entry.file.string(), quote_text(entry.name), quote_text(dtype),
      safetensors_dtype_bits(dtype) > 0 ? "not read as numbers by this version" : "unknown"));
}

}  // namespace ts
