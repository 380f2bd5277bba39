/// A little text to measure a model on when no other is given.
#pragma once

#include <string_view>

namespace ts {

/// About 600 words of prose, dialogue, arithmetic and code, written for this purpose. Enough to see
/// whether a model still works, too little for anything finer.
std::string_view sample_text() noexcept;

}  // namespace ts
