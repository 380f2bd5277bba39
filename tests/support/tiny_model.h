/// Small random models written as GGUF files, for tests: seeded, of any supported family and type.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "format/metadata.h"
#include "tensor/shape.h"
#include "tensor/type_id.h"

namespace ts::test {

/// One tensor before it is written: values are encoded in `type`.
struct TinyTensor {
  std::string name;
  TypeId type = TypeId::kF32;
  Shape shape;
  std::vector<float> values;
};

struct TinyModel {
  std::string architecture = "llama";
  int64_t n_layers = 2, d_model = 256, d_ff = 384, n_heads = 4, n_kv_heads = 2, head_dim = 64;
  int64_t n_vocab = 300, context = 512;
  bool tied = false;
  TypeId matrix_type = TypeId::kF32;
  TypeId embedding_type = TypeId::kF32;
  /// Matrices hold only -s, 0 and +s per group of 128, with s a binary16 number.
  bool ternary = false;
  bool biases = false;  ///< llama only: the optional ones; qwen2 always has its own
  uint64_t seed = 1;
  int64_t sliding_window = 0, sliding_pattern = 3;  ///< gemma3
  /// qwen35: every interval-th layer has full attention.
  int64_t interval = 2, n_k_heads = 2, n_v_heads = 6, state_size = 64, conv_kernel = 4, n_rot = 16;
  /// Last changes before writing.
  std::function<void(Metadata&)> edit_metadata;
  std::function<void(std::vector<TinyTensor>&)> edit_tensors;
};

/// In the proportions of a family: heads of another width than d_model / n_heads, windows.
TinyModel tiny_family(const std::string& architecture);

/// All tensors of the model, in file order.
std::vector<TinyTensor> tiny_tensors(const TinyModel& model);
/// Metadata with a byte-fallback tokenizer: <unk>, <s>, </s>, 256 bytes, then "t259", ...
Metadata tiny_metadata(const TinyModel& model);
void write_tiny_model(const TinyModel& model, const std::filesystem::path& path);

}  // namespace ts::test
