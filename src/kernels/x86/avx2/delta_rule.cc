// Gated-delta-rule kernels compiled for AVX2: the reference's source (delta_rule.inc), whose
// vectors of eight lanes are then one register each. Bit-exact with the reference for every input.
#include "kernels/x86/avx2/avx2_kernels.h"

namespace ts::avx2 {
namespace {
#include "kernels/delta_rule.inc"
}  // namespace

void set_delta_rule(KernelTable* table) {
  table->l2_norm = l2_norm;
  table->conv_taps = conv_taps;
  table->delta_gates = delta_gates;
  table->delta_tokens = delta_tokens;
  table->delta_chunk_products = delta_chunk_products;
  table->delta_chunk_weights = delta_chunk_weights;
  table->delta_chunk = delta_chunk;
}

}  // namespace ts::avx2
