/// Turns pieces of generated text into what may be shown: text up to the first stop string, with
/// nothing shown that could still turn out to be the beginning of one.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace ts {

class TextAssembler {
 public:
  /// Stop strings must be non-empty UTF-8: InvalidArgument names the one that is not.
  explicit TextAssembler(std::vector<std::string> stop_strings);

  /// Appends a piece (valid UTF-8) and returns the text that became certain. When a stop string is
  /// complete, that is the text before it, and stopped() is true from then on. Of stop strings that
  /// end at the same byte the one that begins first counts.
  std::string push(std::string_view piece);
  /// The text still held back; nothing after a stop.
  std::string finish();
  bool stopped() const noexcept { return stopped_; }

 private:
  std::vector<std::string> stop_strings_;
  std::string held_;  ///< a suffix of the text that begins some stop string
  bool stopped_ = false;
};

}  // namespace ts
