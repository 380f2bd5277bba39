// Whatever the keys of a file say about rotated weights, they are either refused with a ts::Error
// or give rotations that fit the tensors they are for and undo themselves. corpus/: small valid
// files of every kind (version 1, tied, without signs, grouped heads, output side), then inputs
// found by fuzzing.

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <vector>

#include <tensorsharp/error.hpp>

#include "format/gguf.h"
#include "hadamard/transform.h"
#include "model/hadamard_contract.h"

namespace {

void require(bool condition) {
  if (!condition) std::abort();
}

void check_rotation(const ts::Rotation& rotation, int64_t width) {
  require(rotation.width() == width);
  require(ts::is_transform_block(rotation.block()) && width % rotation.block() == 0);
  if (width > 1 << 14) return;  // enough of them are small
  std::vector<float> x(static_cast<size_t>(width)), y(x.size()), tiled(x.size());
  for (size_t i = 0; i < x.size(); ++i)
    x[i] = static_cast<float>(i % 31) - 15.0F;
  rotation.forward(x.data(), y.data());
  rotation.inverse(y.data(), y.data());
  rotation.gather(x.data(), 0, x.size(), tiled.data());
  for (size_t i = 0; i < x.size(); ++i)
    require(std::fabs(y[i] - tiled[i]) < 1e-2F);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    const auto file = ts::GgufFile::parse(std::as_bytes(std::span(data, size)), "input");
    const auto contract = ts::HadamardContract::read(*file);
    if (!contract) return 0;
    require(!contract->describe().empty() && !contract->names().empty());
    contract->warn_of_unlisted(*file, {});
    for (const std::string& name : contract->names()) {
      const ts::TensorEntry* tensor = file->find(name);
      require(tensor != nullptr);
      const ts::WeightRotations rotations = contract->rotations_of(name);
      require(rotations.input || rotations.rows || rotations.output);
      for (const auto& rotation : {rotations.input, rotations.rows}) {
        if (rotation) check_rotation(*rotation, tensor->shape[0]);
      }
      if (rotations.output) check_rotation(*rotations.output, tensor->shape[1]);
    }
  } catch (const ts::Error&) {
  }
  return 0;
}
