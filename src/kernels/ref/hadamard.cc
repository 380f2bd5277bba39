// The signed transforms of the reference table: signs and transform_blocks(), which defines them.
#include <bit>

#include "hadamard/transform.h"
#include "kernels/ref/ref_kernels.h"

namespace ts::ref {
namespace {

/// y = signs . x.
void flip(const SignedTransform* t, const float* x, float* y) {
  if (!t->flips) {
    if (x == y) return;
    for (size_t i = 0; i < t->n; ++i)
      y[i] = x[i];
    return;
  }
  for (size_t i = 0; i < t->n; ++i)
    y[i] = std::bit_cast<float>(std::bit_cast<uint32_t>(x[i]) ^ t->flips[i]);
}

void rotate(const SignedTransform* t, const float* x, float* y) {
  flip(t, x, y);
  transform_blocks(y, t->n, t->block);
}

void unrotate(const SignedTransform* t, const float* x, float* y) {
  if (x != y) {
    for (size_t i = 0; i < t->n; ++i)
      y[i] = x[i];
  }
  transform_blocks(y, t->n, t->block);
  flip(t, y, y);
}

}  // namespace

void set_hadamard(KernelTable& table) {
  table.rotate = rotate;
  table.unrotate = unrotate;
}

}  // namespace ts::ref
