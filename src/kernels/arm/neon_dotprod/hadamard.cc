// Signed Walsh-Hadamard transforms for NEON (idea and preconditions: kernels/hadamard.inc): pairs
// of registers as vectors of eight lanes, of which eight fit the 32 registers with room to spare.
// Bit-exact with the reference for every input but the payload of NaNs.
// Not measured: no such machine was at hand; checked under emulation.
#include <arm_neon.h>

#include "kernels/arm/neon_dotprod/neon_kernels.h"

namespace ts::neon_dotprod {
namespace {

struct PairOfVectors {
  struct F {
    float32x4_t a, b;
  };
  static constexpr size_t kLanes = 8;
  static F load(const float* p) { return {vld1q_f32(p), vld1q_f32(p + 4)}; }
  static void store(float* p, F v) {
    vst1q_f32(p, v.a);
    vst1q_f32(p + 4, v.b);
  }
  static F set1(float x) { return {vdupq_n_f32(x), vdupq_n_f32(x)}; }
  static F add(F x, F y) { return {vaddq_f32(x.a, y.a), vaddq_f32(x.b, y.b)}; }
  static F sub(F x, F y) { return {vsubq_f32(x.a, y.a), vsubq_f32(x.b, y.b)}; }
  static F mul(F x, F y) { return {vmulq_f32(x.a, y.a), vmulq_f32(x.b, y.b)}; }
  static F flip(F v, const uint32_t* flips) {
    const auto part = [](float32x4_t x, const uint32_t* f) {
      return vreinterpretq_f32_u32(veorq_u32(vreinterpretq_u32_f32(x), vld1q_u32(f)));
    };
    return {part(v.a, flips), part(v.b, flips + 4)};
  }
  template <int kHalf>
  static F level(F v) {
    if constexpr (kHalf == 4) {
      return {vaddq_f32(v.a, v.b), vsubq_f32(v.a, v.b)};
    } else {
      // The even and the odd members of all pairs of both registers, then their sums and
      // differences back in place.
      const auto split = [&](float32x4_t* even, float32x4_t* odd) {
        if constexpr (kHalf == 1) {
          *even = vuzp1q_f32(v.a, v.b);
          *odd = vuzp2q_f32(v.a, v.b);
        } else {
          *even = low_halves(v.a, v.b);
          *odd = high_halves(v.a, v.b);
        }
      };
      float32x4_t even, odd;
      split(&even, &odd);
      const float32x4_t sum = vaddq_f32(even, odd), difference = vsubq_f32(even, odd);
      if constexpr (kHalf == 1)
        return {vzip1q_f32(sum, difference), vzip2q_f32(sum, difference)};
      else
        return {low_halves(sum, difference), high_halves(sum, difference)};
    }
  }

 private:
  static float32x4_t low_halves(float32x4_t x, float32x4_t y) {
    return vreinterpretq_f32_f64(vzip1q_f64(vreinterpretq_f64_f32(x), vreinterpretq_f64_f32(y)));
  }
  static float32x4_t high_halves(float32x4_t x, float32x4_t y) {
    return vreinterpretq_f32_f64(vzip2q_f64(vreinterpretq_f64_f32(x), vreinterpretq_f64_f32(y)));
  }
};

#include "kernels/hadamard.inc"

}  // namespace

void set_hadamard(KernelTable* table) {
  table->rotate = rotate_with<PairOfVectors>;
  table->unrotate = unrotate_with<PairOfVectors>;
}

}  // namespace ts::neon_dotprod
