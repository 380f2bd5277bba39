/// A read-only tensor in host memory. Does not own its bytes.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "tensor/shape.h"
#include "tensor/type_id.h"

namespace ts {

struct TensorView {
  std::string name;  ///< for messages
  TypeId type = TypeId::kF32;
  Shape shape;                      ///< GGUF order
  std::span<const std::byte> data;  ///< rows of ne[0] elements, packed, row-major; any alignment
};

}  // namespace ts
