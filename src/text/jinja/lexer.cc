#include "text/jinja/lexer.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include <fmt/format.h>

#include <tensorsharp/error.hpp>

#include "base/quote_text.h"
#include "text/jinja/text.h"

namespace ts::jinja {

void syntax_error(Position at, std::string_view message) {
  throw FormatError(
      fmt::format("chat template, line {}, column {}: {}", at.line, at.column, message));
}

namespace {

std::string normalise_newlines(std::string_view source) {
  std::string text;
  text.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      if (i + 1 < source.size() && source[i + 1] == '\n') continue;
      text += '\n';
    } else {
      text += source[i];
    }
  }
  if (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
bool is_name_start(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
         static_cast<unsigned char>(c) >= 0x80;
}
bool is_name_char(char c) {
  return is_name_start(c) || is_digit(c);
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(normalise_newlines(source)), s_(source_) {}

  std::vector<Token> run() {
    while (pos_ < s_.size())
      root();
    push(Token::Kind::kEnd, pos_);
    return std::move(tokens_);
  }

 private:
  bool at(std::string_view wanted) const { return s_.substr(pos_).starts_with(wanted); }

  /// Positions are asked for in ascending order, mostly; the count goes on from the last one.
  Position position(size_t offset) {
    if (offset < counted_) {
      counted_ = 0;
      here_ = {};
    }
    for (; counted_ < offset; ++counted_) {
      if (s_[counted_] == '\n') {
        ++here_.line;
        here_.column = 1;
      } else if ((static_cast<unsigned char>(s_[counted_]) & 0xC0) != 0x80) {
        ++here_.column;
      }
    }
    return here_;
  }

  Token& push(Token::Kind kind, size_t offset, std::string text = {}) {
    tokens_.push_back({kind, position(offset), std::move(text)});
    return tokens_.back();
  }

  void skip_space() {
    while (pos_ < s_.size()) {
      size_t next = pos_;
      if (!is_space(next_char(s_, next))) return;
      pos_ = next;
    }
  }

  /// Writes the text before a tag, stripped as the tag's sign and kind ask.
  void text_before(size_t begin, size_t end, char sign, bool lstrip) {
    std::string_view text = s_.substr(begin, end - begin);
    if (sign == '-') {
      text = text.substr(0, strip_range(text, nullptr, false, true).end);
    } else if (sign != '+' && lstrip) {
      // Blanks between the start of a line and the tag.
      const size_t newline = text.rfind('\n');
      const size_t line = newline == std::string_view::npos ? 0 : newline + 1;
      if ((line > 0 || line_starting_) && line < text.size() &&
          strip_range(text.substr(line), nullptr, true, false).begin == text.size() - line)
        text = text.substr(0, line);
    }
    if (!text.empty()) push(Token::Kind::kText, begin, std::string(text));
  }

  char take_sign() {
    if (pos_ < s_.size() && (s_[pos_] == '-' || s_[pos_] == '+')) return s_[pos_++];
    return 0;
  }

  /// The rest of a block's end after its sign: "%}" with the newline trim_blocks takes.
  void finish_block_end(char sign) {
    pos_ += 2;
    if (sign == '-')
      skip_space();
    else if (sign != '+' && pos_ < s_.size() && s_[pos_] == '\n')
      ++pos_;
    line_starting_ = pos_ > 0 && s_[pos_ - 1] == '\n';
  }

  void root() {
    const size_t begin = pos_;
    size_t tag = begin;
    for (;; ++tag) {
      tag = s_.find('{', tag);
      if (tag == std::string_view::npos || tag + 1 >= s_.size()) {
        push(Token::Kind::kText, begin, std::string(s_.substr(begin)));
        pos_ = s_.size();
        return;
      }
      const char c = s_[tag + 1];
      if (c == '{' || c == '%' || c == '#') break;
    }
    pos_ = tag + 2;
    const char kind = s_[tag + 1];
    const char sign = take_sign();
    text_before(begin, tag, sign, kind != '{');
    if (kind == '#') {
      comment(tag);
    } else if (kind == '{') {
      push(Token::Kind::kOutputBegin, tag);
      expression_tokens(tag, "}}", Token::Kind::kOutputEnd);
    } else if (!raw_block(tag)) {
      push(Token::Kind::kBlockBegin, tag);
      expression_tokens(tag, "%}", Token::Kind::kBlockEnd);
    }
  }

  void comment(size_t tag) {
    const size_t end = s_.find("#}", pos_);
    if (end == std::string_view::npos)
      syntax_error(position(tag), "the comment is not closed; expected #}");
    const char sign = end > pos_ && (s_[end - 1] == '-' || s_[end - 1] == '+') ? s_[end - 1] : '\0';
    pos_ = end;
    finish_block_end(sign);
  }

  /// {% raw %} ... {% endraw %}; false when the tag at pos_ is another one.
  bool raw_block(size_t tag) {
    const size_t start = pos_;
    skip_space();
    if (!at("raw")) return pos_ = start, false;
    pos_ += 3;
    skip_space();
    const bool strip = at("-%}");
    if (!strip && !at("%}")) return pos_ = start, false;
    pos_ += strip ? 3 : 2;
    if (strip) skip_space();
    line_starting_ = s_[pos_ - 1] == '\n';
    const size_t begin = pos_;
    for (size_t end = begin;; ++end) {
      end = s_.find("{%", end);
      if (end == std::string_view::npos)
        syntax_error(position(tag), "the raw block is not closed; expected {% endraw %}");
      pos_ = end + 2;
      const char sign = take_sign();
      skip_space();
      if (!at("endraw")) continue;
      pos_ += 6;
      skip_space();
      const char end_sign = at("-%}") ? '-' : at("+%}") ? '+' : '\0';
      if (end_sign) ++pos_;
      if (!at("%}")) continue;
      text_before(begin, end, sign, true);
      finish_block_end(end_sign);
      return true;
    }
  }

  void expression_tokens(size_t tag, std::string_view end, Token::Kind end_kind) {
    std::string open;  // brackets not closed yet
    for (;;) {
      skip_space();
      if (pos_ >= s_.size())
        syntax_error(position(tag), fmt::format("the tag is not closed; expected {}", end));
      if (open.empty()) {
        const bool strip = s_[pos_] == '-' && s_.substr(pos_ + 1).starts_with(end);
        const bool keep = end_kind == Token::Kind::kBlockEnd && s_[pos_] == '+' &&
                          s_.substr(pos_ + 1).starts_with(end);
        if (strip || keep || at(end)) {
          push(end_kind, pos_);
          if (strip || keep) ++pos_;
          if (end_kind == Token::Kind::kBlockEnd) {
            finish_block_end(strip ? '-' : keep ? '+' : '\0');
          } else {
            pos_ += 2;
            if (strip) skip_space();
            line_starting_ = s_[pos_ - 1] == '\n';
          }
          return;
        }
      }
      const char c = s_[pos_];
      if (is_digit(c))
        number();
      else if (is_name_start(c))
        name();
      else if (c == '"' || c == '\'')
        string();
      else
        op(open);
    }
  }

  void name() {
    const size_t begin = pos_;
    while (pos_ < s_.size() && is_name_char(s_[pos_]))
      ++pos_;
    push(Token::Kind::kName, begin, std::string(s_.substr(begin, pos_ - begin)));
  }

  /// Digits with single underscores between them, as [begin, end) without the underscores.
  std::string digits(int base) {
    std::string result;
    const auto value = [](char c) {
      if (is_digit(c)) return c - '0';
      if (c >= 'a' && c <= 'f') return c - 'a' + 10;
      if (c >= 'A' && c <= 'F') return c - 'A' + 10;
      return 99;
    };
    while (pos_ < s_.size()) {
      if (value(s_[pos_]) < base) {
        result += s_[pos_++];
      } else if (s_[pos_] == '_' && !result.empty() && pos_ + 1 < s_.size() &&
                 value(s_[pos_ + 1]) < base) {
        ++pos_;
      } else {
        break;
      }
    }
    return result;
  }

  void integer(size_t begin, const std::string& text, int base) {
    int64_t value = 0;
    const auto [ptr, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
    if (error != std::errc{} || ptr != text.data() + text.size())
      syntax_error(position(begin),
                   fmt::format("the integer {} does not fit into 64 bits", quote_text(text, 40)));
    push(Token::Kind::kInteger, begin).integer = value;
  }

  void number() {
    const size_t begin = pos_;
    if (s_[pos_] == '0' && pos_ + 2 < s_.size()) {
      const char x = static_cast<char>(s_[pos_ + 1] | 0x20);
      const int base = x == 'x' ? 16 : x == 'o' ? 8 : x == 'b' ? 2 : 0;
      if (base) {
        pos_ += 2;
        const std::string text = digits(base);
        if (!text.empty()) return integer(begin, text, base);
        pos_ = begin;
      }
    }
    std::string text = digits(10);
    bool floating = false;
    const bool after_dot = begin > 0 && s_[begin - 1] == '.';  // x.0.1 is two subscripts
    if (!after_dot && pos_ + 1 < s_.size() && s_[pos_] == '.' && is_digit(s_[pos_ + 1])) {
      ++pos_;
      text += "." + digits(10);
      floating = true;
    }
    if (!after_dot && pos_ + 1 < s_.size() && (s_[pos_] == 'e' || s_[pos_] == 'E')) {
      size_t p = pos_ + 1;
      const bool sign = s_[p] == '+' || s_[p] == '-';
      if (sign) ++p;
      if (p < s_.size() && is_digit(s_[p])) {
        text += sign ? std::string("e") + s_[p - 1] : "e";
        pos_ = p;
        text += digits(10);
        floating = true;
      }
    }
    if (!floating) return integer(begin, text, 10);
    double value = 0;
    const auto error = std::from_chars(text.data(), text.data() + text.size(), value).ec;
    if (error == std::errc::result_out_of_range)
      value = text.find("e-") == text.npos ? HUGE_VAL : 0;
    push(Token::Kind::kFloat, begin).number = value;
  }

  void string() {
    const size_t begin = pos_;
    const char quote = s_[pos_++];
    std::string value;
    for (;;) {
      if (pos_ >= s_.size()) syntax_error(position(begin), "the string is not closed");
      const char c = s_[pos_++];
      if (c == quote) break;
      if (c == '\\')
        escape(begin, value);
      else
        value += c;
    }
    push(Token::Kind::kString, begin, std::move(value));
  }

  /// Python's escapes; an unknown one keeps its backslash.
  void escape(size_t begin, std::string& value) {
    if (pos_ >= s_.size()) syntax_error(position(begin), "the string is not closed");
    const char c = s_[pos_++];
    constexpr std::string_view kFrom = "\\'\"abfnrtv", kTo = "\\'\"\a\b\f\n\r\t\v";
    if (const size_t i = kFrom.find(c); i != std::string_view::npos) {
      value += kTo[i];
    } else if (c == '\n') {
      return;  // line continuation
    } else if (c >= '0' && c <= '7') {
      char32_t code = static_cast<char32_t>(c - '0');
      for (int n = 0; n < 2 && pos_ < s_.size() && s_[pos_] >= '0' && s_[pos_] <= '7'; ++n)
        code = code * 8 + static_cast<char32_t>(s_[pos_++] - '0');
      append_utf8(value, code);
    } else if (c == 'x' || c == 'u' || c == 'U') {
      const size_t n = c == 'x' ? 2 : c == 'u' ? 4 : 8;
      const std::string hex(s_.substr(pos_, n));
      uint32_t code = 0;
      const auto [ptr, error] = std::from_chars(hex.data(), hex.data() + hex.size(), code, 16);
      if (hex.size() != n || error != std::errc{} || ptr != hex.data() + n || code > 0x10FFFF ||
          (code >= 0xD800 && code < 0xE000))
        syntax_error(position(pos_ - 2),
                     fmt::format("\\{} needs {} hexadecimal digits of a valid character", c, n));
      pos_ += n;
      append_utf8(value, code);
    } else if (c == 'N') {
      syntax_error(position(pos_ - 2), "\\N{...} is not supported in strings; use \\u");
    } else {
      value += '\\';
      value += c;
    }
  }

  void op(std::string& open) {
    static constexpr std::array<std::string_view, 26> kOperators = {
        "//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[",
        "]",  "(",  ")",  "{",  "}",  ">",  "<", "=", ".", ":", "|", ",", ";"};
    const auto it = std::find_if(kOperators.begin(), kOperators.end(),
                                 [&](std::string_view o) { return at(o); });
    if (it == kOperators.end())
      syntax_error(position(pos_),
                   fmt::format("unexpected character {}",
                               quote_text(s_.substr(pos_, utf8_char_bytes(s_.substr(pos_))), 8)));
    const char c = it->front();
    if (c == '(' || c == '[' || c == '{') open += c;
    if (c == ')' || c == ']' || c == '}') {
      const char wanted = c == ')' ? '(' : c == ']' ? '[' : '{';
      if (open.empty() || open.back() != wanted)
        syntax_error(position(pos_), fmt::format("unexpected '{}'", c));
      open.pop_back();
    }
    push(Token::Kind::kOperator, pos_, std::string(*it));
    pos_ += it->size();
  }

  std::string source_;
  std::string_view s_;
  size_t pos_ = 0;
  bool line_starting_ = true;  // the text at pos_ starts a line
  size_t counted_ = 0;
  Position here_;
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> tokenize(std::string_view source) {
  const size_t bad = find_invalid_utf8(source);
  if (bad != std::string_view::npos)
    throw FormatError(fmt::format("chat template: byte {} is not UTF-8", bad));
  return Lexer(source).run();
}

}  // namespace ts::jinja
