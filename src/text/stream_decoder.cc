#include <utility>

#include "text/tokenizer.h"
#include "text/utf8.h"

namespace ts {

StreamDecoder::StreamDecoder(std::shared_ptr<const Tokenizer> tokenizer, bool show_special,
                             bool continues_text)
    : tokenizer_(std::move(tokenizer)), show_special_(show_special), at_start_(!continues_text) {}

std::string StreamDecoder::push(TokenId id) {
  pending_ += tokenizer_->token_bytes(id, show_special_);
  if (at_start_ && !pending_.empty()) {
    at_start_ = false;
    if (tokenizer_->strips_leading_space() && pending_.front() == ' ') pending_.erase(0, 1);
  }
  // Everything is final except a sequence that the end of the bytes cuts short.
  size_t complete = 0;
  while (complete < pending_.size()) {
    const Utf8Char c = decode_utf8(pending_, complete);
    if (c.truncated) break;
    complete += c.length;
  }
  std::string out;
  append_valid_utf8(out, std::string_view(pending_).substr(0, complete));
  pending_.erase(0, complete);
  return out;
}

std::string StreamDecoder::finish() {
  std::string out;
  append_valid_utf8(out, pending_);
  pending_.clear();
  return out;
}

}  // namespace ts
