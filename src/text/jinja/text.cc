#include "text/jinja/text.h"

#include <cstring>

#include <utf8proc.h>

namespace ts::jinja {

void Text::mark(size_t begin, size_t end) {
  if (begin == end) return;
  if (!untrusted_.empty() && untrusted_.back().end == begin)
    untrusted_.back().end = end;
  else
    untrusted_.push_back({begin, end});
}

void Text::append(const Text& other, size_t begin, size_t end) {
  const size_t start = bytes_.size();
  // The copy also makes appending a text to itself safe.
  for (size_t i = 0, n = other.untrusted_.size(); i < n; ++i) {
    const ByteRange range = other.untrusted_[i];
    const size_t b = std::max(range.begin, begin), e = std::min(range.end, end);
    if (b < e) mark(start + (b - begin), start + (e - begin));
  }
  bytes_.append(other.bytes_, begin, end - begin);
}

void Text::append(std::string_view bytes, bool untrusted) {
  const size_t start = bytes_.size();
  bytes_.append(bytes);
  if (untrusted) mark(start, bytes_.size());
}

Text Text::substr(size_t begin, size_t end) const {
  Text result;
  result.append(*this, begin, end);
  return result;
}

char32_t next_char(std::string_view text, size_t& position) noexcept {
  const auto byte = [&](size_t i) -> char32_t {
    return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u;
  };
  const char32_t a = byte(position);
  if (a < 0x80) {
    ++position;
    return a;
  }
  const size_t p = position;
  if (a < 0xE0) {
    position = p + 2;
    return ((a & 0x1F) << 6) | (byte(p + 1) & 0x3F);
  }
  if (a < 0xF0) {
    position = p + 3;
    return ((a & 0x0F) << 12) | ((byte(p + 1) & 0x3F) << 6) | (byte(p + 2) & 0x3F);
  }
  position = p + 4;
  return ((a & 0x07) << 18) | ((byte(p + 1) & 0x3F) << 12) | ((byte(p + 2) & 0x3F) << 6) |
         (byte(p + 3) & 0x3F);
}

void append_utf8(std::string& out, char32_t c) {
  const auto put = [&](char32_t b) { out.push_back(static_cast<char>(b)); };
  if (c < 0x80) {
    put(c);
  } else if (c < 0x800) {
    put(0xC0 | (c >> 6));
    put(0x80 | (c & 0x3F));
  } else if (c < 0x10000) {
    put(0xE0 | (c >> 12));
    put(0x80 | ((c >> 6) & 0x3F));
    put(0x80 | (c & 0x3F));
  } else {
    put(0xF0 | (c >> 18));
    put(0x80 | ((c >> 12) & 0x3F));
    put(0x80 | ((c >> 6) & 0x3F));
    put(0x80 | (c & 0x3F));
  }
}

namespace {
bool is_continuation(char c) noexcept {
  return (static_cast<unsigned char>(c) & 0xC0) == 0x80;
}
utf8proc_category_t category(char32_t c) noexcept {
  return utf8proc_category(static_cast<utf8proc_int32_t>(c));
}
}  // namespace

size_t count_chars(std::string_view text) noexcept {
  size_t n = 0;
  for (const char c : text)
    n += !is_continuation(c);
  return n;
}

size_t char_offset(std::string_view text, size_t index) noexcept {
  size_t position = 0;
  while (position < text.size()) {
    if (!is_continuation(text[position]) && index-- == 0) return position;
    ++position;
  }
  return text.size();
}

bool is_space(char32_t c) noexcept {
  if (c < 0x80) return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20);
  return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 ||
         c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

bool is_printable(char32_t c) noexcept {
  if (c < 0x7F) return c >= 0x20;
  switch (category(c)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS:
      return false;
    default:
      return true;
  }
}

bool is_alphabetic(char32_t c) noexcept {
  const auto k = category(c);
  return k >= UTF8PROC_CATEGORY_LU && k <= UTF8PROC_CATEGORY_LO;
}
bool is_decimal_digit(char32_t c) noexcept {
  return category(c) == UTF8PROC_CATEGORY_ND;
}
bool is_upper(char32_t c) noexcept {
  return utf8proc_isupper(static_cast<utf8proc_int32_t>(c));
}
bool is_lower(char32_t c) noexcept {
  return utf8proc_islower(static_cast<utf8proc_int32_t>(c));
}
char32_t to_upper(char32_t c) noexcept {
  return static_cast<char32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(c)));
}
char32_t to_lower(char32_t c) noexcept {
  return static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c)));
}
char32_t to_title(char32_t c) noexcept {
  return static_cast<char32_t>(utf8proc_totitle(static_cast<utf8proc_int32_t>(c)));
}

size_t find_bytes(std::string_view text, std::string_view wanted, size_t from) noexcept {
  if (from > text.size()) return std::string_view::npos;
  if (wanted.empty()) return from;
  if (from == text.size()) return std::string_view::npos;
  // memmem is the two-way algorithm: linear, where string::find is quadratic at worst.
  const void* hit = memmem(text.data() + from, text.size() - from, wanted.data(), wanted.size());
  return hit ? static_cast<size_t>(static_cast<const char*>(hit) - text.data())
             : std::string_view::npos;
}

ByteRange strip_range(std::string_view text, const std::string_view* set, bool left, bool right) {
  const auto stripped = [&](size_t begin, size_t end) {
    if (set) return set->find(text.substr(begin, end - begin)) != std::string_view::npos;
    size_t p = begin;
    return is_space(next_char(text, p));
  };
  size_t begin = 0, end = text.size();
  while (left && begin < end) {
    size_t next = begin;
    next_char(text, next);
    if (!stripped(begin, next)) break;
    begin = next;
  }
  while (right && begin < end) {
    size_t last = end - 1;
    while (last > begin && is_continuation(text[last]))
      --last;
    if (!stripped(last, end)) break;
    end = last;
  }
  return {begin, end};
}

}  // namespace ts::jinja
