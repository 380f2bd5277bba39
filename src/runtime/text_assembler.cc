#include "runtime/text_assembler.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include <tensorsharp/error.hpp>

#include "base/quote_text.h"

namespace ts {

TextAssembler::TextAssembler(std::vector<std::string> stop_strings)
    : stop_strings_(std::move(stop_strings)) {
  for (const std::string& stop : stop_strings_) {
    if (stop.empty()) throw InvalidArgument("a stop string is empty; expected some text");
    if (find_invalid_utf8(stop) != std::string_view::npos)
      throw InvalidArgument(fmt::format("stop string {} is not UTF-8 text", quote_text(stop)));
  }
}

std::string TextAssembler::push(std::string_view piece) {
  if (stopped_) return {};
  held_ += piece;
  // The stop string that is complete first, by its last byte; then by its first.
  size_t best_end = std::string::npos, best_begin = 0;
  for (const std::string& stop : stop_strings_) {
    const size_t begin = held_.find(stop);
    if (begin == std::string::npos) continue;
    const size_t end = begin + stop.size();
    if (end < best_end || (end == best_end && begin < best_begin)) {
      best_end = end;
      best_begin = begin;
    }
  }
  if (best_end != std::string::npos) {
    stopped_ = true;
    held_.resize(best_begin);
    return std::exchange(held_, {});
  }
  // Hold back the longest suffix that is a proper beginning of a stop string.
  size_t keep = 0;
  for (const std::string& stop : stop_strings_) {
    for (size_t n = std::min(stop.size() - 1, held_.size()); n > keep; --n) {
      if (held_.ends_with(std::string_view(stop).substr(0, n))) keep = n;
    }
  }
  std::string ready = held_.substr(0, held_.size() - keep);
  held_.erase(0, held_.size() - keep);
  return ready;
}

std::string TextAssembler::finish() {
  return std::exchange(held_, {});
}

}  // namespace ts
