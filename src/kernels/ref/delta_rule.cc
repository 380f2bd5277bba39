// Gated-delta-rule kernels for the baseline instruction set (see delta_rule.inc).
#include "kernels/ref/ref_kernels.h"

namespace ts::ref {
namespace {
#include "kernels/delta_rule.inc"
}  // namespace

void set_delta_rule(KernelTable& table) {
  table.l2_norm = l2_norm;
  table.conv_taps = conv_taps;
  table.delta_gates = delta_gates;
  table.delta_tokens = delta_tokens;
  table.delta_chunk_products = delta_chunk_products;
  table.delta_chunk_weights = delta_chunk_weights;
  table.delta_chunk = delta_chunk;
}

}  // namespace ts::ref
