// Any bytes given as a safetensors file are either refused with a ts::Error or give tensors that
// lie side by side inside the input and whose values can be read. corpus/: small valid files of
// every kind and single faults, then inputs found by fuzzing.

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <vector>

#include <tensorsharp/error.hpp>

#include "format/safetensors.h"

namespace {

void require(bool condition) {
  if (!condition) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto input = std::as_bytes(std::span(data, size));
  try {
    const auto file = ts::Safetensors::parse(input, "input");
    uint64_t total = 0;
    for (const ts::SafetensorsEntry& tensor : file->tensors()) {
      require(file->find(tensor.name) == &tensor);
      require(tensor.data.data() >= input.data() &&
              tensor.data.data() + tensor.data.size() <= input.data() + input.size());
      total += tensor.data.size();
      const int64_t n = tensor.n_elems();
      require(n >= 0);
      std::vector<float> values(static_cast<size_t>(std::min<int64_t>(n, 1000)));
      try {
        ts::Safetensors::read_f32(tensor, 0, values);
        ts::Safetensors::read_f32(tensor, n - static_cast<int64_t>(values.size()), values);
      } catch (const ts::Unsupported&) {
      }
    }
    require(total <= input.size());
  } catch (const ts::Error&) {
  }
  return 0;
}
