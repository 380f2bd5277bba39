/// Cuts text at special tokens before anything else looks at it.
///
/// The rule is longest first: of all candidate texts, the longest is cut out of the text from left
/// to right, then the next longest out of what remains, and so on; texts of one length go in order
/// of their ids. Vocabularies have thousands of candidates, so the text is not scanned once for
/// each: a trie finds the longest candidate at every position, and the finds are settled length by
/// length, a find that lost some of its bytes to a longer one being replaced by the longest
/// candidate that still fits. The result is that of the rule.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer.h"

namespace ts {

/// A part of a text: a special token, or raw text where `id` is negative.
struct TextFragment {
  size_t begin = 0, end = 0;
  TokenId id = -1;
};

class SpecialTokens {
 public:
  struct Candidate {
    std::string text;
    TokenId id = -1;
    bool always = false;  ///< user-defined: recognised everywhere
  };
  /// Longer texts are refused (FormatError): they would make the search slow.
  static constexpr size_t kMaxBytes = 1024;

  explicit SpecialTokens(std::vector<Candidate> candidates);

  /// The fragments of `text` (< 2^32 bytes), covering it without gaps. Control tokens are
  /// recognised when `parse_special`, and only where they do not touch an `untrusted` range
  /// (sorted, disjoint).
  std::vector<TextFragment> partition(std::string_view text, bool parse_special,
                                      std::span<const ByteRange> untrusted) const;

 private:
  struct Node {
    uint32_t first_edge = 0;
    uint32_t n_edges = 0;
    TokenId always_id = -1;   ///< candidate ending here that is recognised everywhere
    TokenId trusted_id = -1;  ///< candidate to use where control tokens are allowed
  };
  struct Edge {
    uint8_t byte = 0;
    uint32_t node = 0;
  };
  struct Match {
    uint32_t length = 0;
    TokenId id = -1;
  };
  /// The longest candidate at `position` of at most `limit` bytes, and at most `trusted_limit`
  /// where it is a control token.
  Match longest(std::string_view text, size_t position, size_t limit, size_t trusted_limit) const;

  std::vector<Node> nodes_;
  std::vector<Edge> edges_;
  std::vector<bool> starts_;  ///< bytes a candidate begins with
  size_t max_bytes_ = 0;
};

}  // namespace ts
