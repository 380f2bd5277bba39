/// Strings of the template engine: UTF-8 bytes that remember which of them came from the request.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer.h"

namespace ts::jinja {

/// UTF-8 text with the byte ranges that came from the input ("untrusted"): sorted, disjoint, not
/// touching. Every operation keeps them: a byte derived from an untrusted byte is untrusted.
class Text {
 public:
  Text() = default;
  /// All bytes of one origin.
  explicit Text(std::string bytes, bool untrusted = false) : bytes_(std::move(bytes)) {
    if (untrusted && !bytes_.empty()) untrusted_.push_back({0, bytes_.size()});
  }

  const std::string& bytes() const noexcept { return bytes_; }
  std::string_view view() const noexcept { return bytes_; }
  size_t size() const noexcept { return bytes_.size(); }
  bool empty() const noexcept { return bytes_.empty(); }
  const std::vector<ByteRange>& untrusted() const noexcept { return untrusted_; }
  bool any_untrusted() const noexcept { return !untrusted_.empty(); }

  void append(const Text& other) { append(other, 0, other.size()); }
  /// Bytes [begin, end) of `other`.
  void append(const Text& other, size_t begin, size_t end);
  void append(std::string_view bytes, bool untrusted);
  Text substr(size_t begin, size_t end) const;
  /// Memory this text takes beyond the object itself.
  size_t heap_bytes() const noexcept {
    return bytes_.size() + untrusted_.size() * sizeof(ByteRange);
  }
  std::string take_bytes() && { return std::move(bytes_); }
  std::vector<ByteRange> take_untrusted() && { return std::move(untrusted_); }

 private:
  void mark(size_t begin, size_t end);
  std::string bytes_;
  std::vector<ByteRange> untrusted_;
};

/// Tells, for positions asked in ascending order, whether a byte of a text is untrusted.
class OriginCursor {
 public:
  explicit OriginCursor(const Text& text) : ranges_(text.untrusted()) {}
  bool untrusted(size_t position) noexcept {
    while (next_ < ranges_.size() && ranges_[next_].end <= position)
      ++next_;
    return next_ < ranges_.size() && ranges_[next_].begin <= position;
  }

 private:
  const std::vector<ByteRange>& ranges_;
  size_t next_ = 0;
};

// Characters. All texts are valid UTF-8: sources and inputs are checked when they come in.

/// The code point at `position`, which is moved behind it.
char32_t next_char(std::string_view text, size_t& position) noexcept;
void append_utf8(std::string& out, char32_t c);
size_t count_chars(std::string_view text) noexcept;
/// Byte offset of character `index`; the size of the text when there are fewer.
size_t char_offset(std::string_view text, size_t index) noexcept;
/// Python's str.isspace for one character.
bool is_space(char32_t c) noexcept;
/// Python's str.isprintable for one character.
bool is_printable(char32_t c) noexcept;
bool is_alphabetic(char32_t c) noexcept;
bool is_decimal_digit(char32_t c) noexcept;
bool is_upper(char32_t c) noexcept;
bool is_lower(char32_t c) noexcept;
char32_t to_upper(char32_t c) noexcept;
char32_t to_lower(char32_t c) noexcept;
char32_t to_title(char32_t c) noexcept;

/// First occurrence at or after `from`, or npos; linear time whatever the texts.
size_t find_bytes(std::string_view text, std::string_view wanted, size_t from) noexcept;

/// [begin, end) of `text` without white space (or, if `set` is not null, characters of *set) at its
/// ends.
ByteRange strip_range(std::string_view text, const std::string_view* set, bool left, bool right);

}  // namespace ts::jinja
