/// Tensor element types by their ggml number, the numbering of GGUF files.
#pragma once

#include <cstdint>

namespace ts {

/// The type number as a file states it; any value may occur, known or not. What a number means is
/// said by the codec registry (src/codec/registry.cc) and nowhere else.
enum class TypeId : uint32_t {
  kF32 = 0,
  kF16 = 1,
  kQ4_0 = 2,
  kQ4_1 = 3,
  kQ5_0 = 6,
  kQ5_1 = 7,
  kQ8_0 = 8,
  kQ2_K = 10,
  kQ3_K = 11,
  kQ4_K = 12,
  kQ5_K = 13,
  kQ6_K = 14,
  kI8 = 24,
  kI16 = 25,
  kI32 = 26,
  kI64 = 27,
  kF64 = 28,
  kBF16 = 30,
  kTQ1_0 = 34,
  kTQ2_0 = 35,
  kQ1_0 = 41,
  kQ2_0 = 42,
  kPQ2_0 = 142,
  kPTQ1_0 = 143,
};

}  // namespace ts
