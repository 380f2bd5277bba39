/// Type numbers this version knows by name only: it can say what they are and what to do instead.
#pragma once

#include <string_view>

#include "tensor/type_id.h"

namespace ts {

struct NamedType {
  TypeId id;
  std::string_view name;    ///< lower case
  std::string_view advice;  ///< one clause, without a full stop
};

/// Null when the number is a codec's or unknown.
const NamedType* find_named_type(TypeId id) noexcept;

}  // namespace ts
