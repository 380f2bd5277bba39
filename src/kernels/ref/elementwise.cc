// Element-wise operations for the baseline instruction set (see elementwise.inc).
#include "kernels/ref/ref_kernels.h"

namespace ts::ref {
namespace {
#include "kernels/elementwise.inc"

void quantize_row(const float* x, size_t k, size_t group, const ActRowOut* out) {
  quantize_groups(x, k, group, 0, out);
}
}  // namespace

void set_elementwise(KernelTable& table) {
  table.quantize_row = quantize_row;
  table.interleave4 = interleave4;
  table.rms_norm = rms_norm;
  table.add = add;
  table.scale = scale;
  table.silu_gate = silu_gate;
  table.gelu_gate = gelu_gate;
  table.sigmoid_gate = sigmoid_gate;
  table.softcap = softcap;
  table.rope_half_split = rope_half_split;
  table.rope_interleaved = rope_interleaved;
  table.dequantize32 = dequantize32;
  table.softmax_terms = softmax_terms;
  table.exp = exp_one;
  table.scaled_add = scaled_add;
}

}  // namespace ts::ref
