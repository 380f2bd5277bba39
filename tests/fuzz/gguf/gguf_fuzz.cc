// Any bytes given as a GGUF file are either refused with a ts::Error or give tensors whose bytes
// lie inside the input. Reads everything that a caller could read, so that a sanitizer sees it.
// corpus/: small valid files of every kind and single faults, then inputs found by fuzzing.

#include <cstdint>
#include <cstdlib>
#include <span>
#include <string>

#include <tensorsharp/error.hpp>

#include "format/gguf.h"

namespace {

void require(bool condition) {
  if (!condition) std::abort();
}

template <typename Run>
void tolerate_errors(Run run) {
  try {
    run();
  } catch (const ts::Error&) {
  }
}

void read_metadata(const ts::Metadata& metadata) {
  for (const auto& entry : metadata.entries()) {
    const std::string& key = entry.first;
    require(metadata.find(key) == &entry.second);
    require(!ts::describe_type(entry.second).empty());
    tolerate_errors([&] { metadata.get_int(key, INT64_MIN, INT64_MAX); });
    tolerate_errors([&] { metadata.get_float(key); });
    tolerate_errors([&] { metadata.get_bool(key); });
    tolerate_errors([&] { metadata.get_string(key); });
    tolerate_errors([&] { metadata.get_strings(key); });
    tolerate_errors([&] { metadata.get_ints(key, 0, 1 << 20); });
    tolerate_errors([&] { metadata.get_floats(key); });
    tolerate_errors([&] { metadata.get_bools(key); });
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto input = std::as_bytes(std::span(data, size));
  tolerate_errors([&] {
    const auto file = ts::GgufFile::parse(input, "input");
    read_metadata(file->metadata());
    unsigned sum = 0;
    for (const ts::TensorEntry& tensor : file->tensors()) {
      require(file->find(tensor.name) == &tensor);
      require(tensor.shape.checked_elems().has_value());
      require(tensor.data.size() == tensor.bytes);
      if (tensor.data.empty()) continue;
      require(tensor.data.data() >= input.data() &&
              tensor.data.data() + tensor.data.size() <= input.data() + input.size());
      for (const std::byte b : tensor.data)
        sum += static_cast<unsigned>(b);
    }
    require(sum != 1u << 31);  // keeps the loop; no input of 64 KiB sums so high
  });
  return 0;
}
