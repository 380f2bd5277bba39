#include "text/pre_tokenizer.h"

#include <array>

#include <utf8proc.h>

#include "text/utf8.h"

namespace ts {
namespace {

constexpr std::array kPreTokenizers = {
    PreTokenizer{"qwen2", PreTokenizerKind::kQwen2, false},
    PreTokenizer{"deepseek-r1-qwen", PreTokenizerKind::kQwen2, false},
    PreTokenizer{"qwen35", PreTokenizerKind::kQwen35, false},
    PreTokenizer{"llama-bpe", PreTokenizerKind::kLlama3, true},
    PreTokenizer{"llama3", PreTokenizerKind::kLlama3, true},
    PreTokenizer{"llama-v3", PreTokenizerKind::kLlama3, true},
    PreTokenizer{"falcon3", PreTokenizerKind::kLlama3, true},
    PreTokenizer{"pixtral", PreTokenizerKind::kLlama3, true},
    PreTokenizer{"smaug-bpe", PreTokenizerKind::kLlama3, false},
    PreTokenizer{"dbrx", PreTokenizerKind::kLlama3, false},
    PreTokenizer{"gpt-2", PreTokenizerKind::kGpt2, false},
    PreTokenizer{"phi-2", PreTokenizerKind::kGpt2, false},
    PreTokenizer{"olmo", PreTokenizerKind::kGpt2, false},
    PreTokenizer{"mpt", PreTokenizerKind::kGpt2, false},
    PreTokenizer{"jais", PreTokenizerKind::kGpt2, false},
    PreTokenizer{"smollm", PreTokenizerKind::kSmollm, false},
    PreTokenizer{"starcoder", PreTokenizerKind::kSmollm, false},
    PreTokenizer{"refact", PreTokenizerKind::kSmollm, false},
    PreTokenizer{"command-r", PreTokenizerKind::kSmollm, false},
    PreTokenizer{"codeshell", PreTokenizerKind::kSmollm, false},
    PreTokenizer{"exaone", PreTokenizerKind::kSmollm, false},
    PreTokenizer{"minerva-7b", PreTokenizerKind::kSmollm, false},
    PreTokenizer{"default", PreTokenizerKind::kDefault, false},
};

enum : uint8_t {
  kLetter = 1,
  kNumber = 2,
  kSpace = 4,
  kNewline = 8,  // \r or \n; set together with kSpace
  kMark = 16,
  kPunctuation = 32,
};

uint8_t classify(char32_t c) noexcept {
  // Unicode's White_Space, in full.
  if ((c >= 0x09 && c <= 0x0D) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 ||
      (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F ||
      c == 0x3000) {
    return c == '\n' || c == '\r' ? kSpace | kNewline : kSpace;
  }
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(c))) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
      return kLetter;
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
      return kMark;
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_NO:
      return kNumber;
    case UTF8PROC_CATEGORY_PC:
    case UTF8PROC_CATEGORY_PD:
    case UTF8PROC_CATEGORY_PS:
    case UTF8PROC_CATEGORY_PE:
    case UTF8PROC_CATEGORY_PI:
    case UTF8PROC_CATEGORY_PF:
    case UTF8PROC_CATEGORY_PO:
      return kPunctuation;
    default:
      return 0;
  }
}

/// The text as characters: their classes and where they begin.
class Characters {
 public:
  explicit Characters(std::string_view text) : text_(text) {
    static const std::array<uint8_t, 128> ascii = [] {
      std::array<uint8_t, 128> table{};
      for (unsigned c = 0; c < 128; ++c)
        table[c] = classify(c);
      return table;
    }();
    class_.reserve(text.size());
    begin_.reserve(text.size() + 1);
    for (size_t i = 0; i < text.size();) {
      begin_.push_back(static_cast<uint32_t>(i));
      const uint8_t byte = static_cast<uint8_t>(text[i]);
      if (byte < 128) {
        class_.push_back(ascii[byte]);
        ++i;
        continue;
      }
      const Utf8Char c = decode_utf8(text, i);
      class_.push_back(c.valid ? classify(c.code_point) : uint8_t{0});
      i += c.valid ? c.length : 1;
    }
    begin_.push_back(static_cast<uint32_t>(text.size()));
  }

  size_t size() const noexcept { return class_.size(); }
  bool is(size_t i, unsigned mask) const noexcept { return (class_[i] & mask) != 0; }
  /// The first byte; equal to the character for ASCII.
  char first(size_t i) const noexcept { return text_[begin_[i]]; }
  uint32_t offset(size_t i) const noexcept { return begin_[i]; }
  /// First index at or after `i` (and at most `end`) whose class has / lacks a bit of `mask`.
  size_t skip(size_t i, size_t end, unsigned mask) const noexcept {
    while (i < end && is(i, mask))
      ++i;
    return i;
  }
  size_t skip_not(size_t i, size_t end, unsigned mask) const noexcept {
    while (i < end && !is(i, mask))
      ++i;
    return i;
  }

 private:
  std::string_view text_;
  std::vector<uint8_t> class_;
  std::vector<uint32_t> begin_;
};

/// Length in characters of an English contraction at `i`, or 0.
size_t contraction(const Characters& c, size_t i, size_t end, bool any_case) noexcept {
  if (c.first(i) != '\'' || i + 1 >= end) return 0;
  const auto letter = [&](size_t k) {
    const char ch = c.first(k);
    return any_case && ch >= 'A' && ch <= 'Z' ? static_cast<char>(ch - 'A' + 'a') : ch;
  };
  const char a = letter(i + 1);
  if (a == 's' || a == 't' || a == 'm' || a == 'd') return 2;
  if (i + 2 >= end) return 0;
  const char b = letter(i + 2);
  return (a == 'r' && b == 'e') || (a == 'v' && b == 'e') || (a == 'l' && b == 'l') ? 3 : 0;
}

/// \s+(?!\S)|\s+ at a white-space character: the run, less its last character when text follows.
size_t blank_piece_end(size_t begin, size_t run_end, size_t end) noexcept {
  return run_end == end || run_end - begin == 1 ? run_end : run_end - 1;
}

size_t gpt2_piece_end(const Characters& c, size_t i, size_t end) noexcept {
  if (const size_t n = contraction(c, i, end, false)) return i + n;
  const size_t j = c.first(i) == ' ' ? i + 1 : i;
  if (j < end && !c.is(j, kSpace)) {
    if (c.is(j, kLetter)) return c.skip(j, end, kLetter);
    if (c.is(j, kNumber)) return c.skip(j, end, kNumber);
    return c.skip_not(j, end, kSpace | kLetter | kNumber);
  }
  return blank_piece_end(i, c.skip(i, end, kSpace), end);
}

/// The common scheme of qwen2, qwen35 and llama3.
size_t qwen_piece_end(const Characters& c, size_t i, size_t end, unsigned letter,
                      size_t max_digits) noexcept {
  if (const size_t n = contraction(c, i, end, true)) return i + n;
  if (c.is(i, letter)) return c.skip(i, end, letter);
  if (!c.is(i, kNewline | kNumber) && i + 1 < end && c.is(i + 1, letter)) {
    return c.skip(i + 1, end, letter);
  }
  if (c.is(i, kNumber)) return c.skip(i, i + max_digits < end ? i + max_digits : end, kNumber);
  const size_t j = c.first(i) == ' ' ? i + 1 : i;
  if (j < end && !c.is(j, kSpace | letter | kNumber)) {
    return c.skip(c.skip_not(j, end, kSpace | letter | kNumber), end, kNewline);
  }
  size_t run_end = i, after_newline = i;
  for (; run_end < end && c.is(run_end, kSpace); ++run_end) {
    if (c.is(run_end, kNewline)) after_newline = run_end + 1;
  }
  if (after_newline > i) return after_newline;
  return blank_piece_end(i, run_end, end);
}

class Splitter {
 public:
  Splitter(const Characters& characters, std::vector<uint32_t>& ends)
      : c_(characters), ends_(ends) {}

  void gpt2(size_t i, size_t end) {
    while (i < end)
      emit(i = gpt2_piece_end(c_, i, end));
  }
  void qwen(size_t i, size_t end, unsigned letter, size_t max_digits) {
    while (i < end)
      emit(i = qwen_piece_end(c_, i, end, letter, max_digits));
  }
  void smollm(size_t i, size_t end) {
    while (i < end) {
      const size_t digit = c_.skip_not(i, end, kNumber);
      gpt2(i, digit);
      i = digit;
      if (i < end) emit(++i);
    }
  }
  void fallback(size_t i, size_t end) {
    while (i < end) {
      const bool punctuation = is_punctuation(i);
      size_t j = i + 1;
      while (j < end && is_punctuation(j) == punctuation)
        ++j;
      while (i < j) {
        const size_t piece_end = gpt2_piece_end(c_, i, j);
        numbers(i, piece_end);
        i = piece_end;
      }
    }
  }

 private:
  void emit(size_t end) { ends_.push_back(c_.offset(end)); }
  bool is_punctuation(size_t i) const noexcept {
    return c_.is(i, kPunctuation) ||
           std::string_view("$+<=>^~|").find(c_.first(i)) != std::string_view::npos;
  }
  bool is_ascii_digit(size_t i) const noexcept { return c_.first(i) >= '0' && c_.first(i) <= '9'; }
  void numbers(size_t i, size_t end) {
    while (i < end) {
      const bool number = c_.is(i, kNumber);
      const size_t j = number ? c_.skip(i, end, kNumber) : c_.skip_not(i, end, kNumber);
      number ? threes(i, j) : emit(j);
      i = j;
    }
  }
  void threes(size_t i, size_t end) {
    size_t emitted = i;
    while (i < end) {
      if (end - i >= 3 && is_ascii_digit(i) && is_ascii_digit(i + 1) && is_ascii_digit(i + 2)) {
        if (i > emitted) emit(i);
        emit(i += 3);
        emitted = i;
      } else {
        ++i;
      }
    }
    if (end > emitted) emit(end);
  }

  const Characters& c_;
  std::vector<uint32_t>& ends_;
};

}  // namespace

const PreTokenizer* find_pre_tokenizer(std::string_view name) noexcept {
  for (const PreTokenizer& p : kPreTokenizers) {
    if (p.name == name) return &p;
  }
  return nullptr;
}

std::string known_pre_tokenizers() {
  std::string out;
  for (const PreTokenizer& p : kPreTokenizers) {
    if (!out.empty()) out += ", ";
    out += p.name;
  }
  return out;
}

void pre_tokenize(PreTokenizerKind kind, std::string_view text, std::vector<uint32_t>& ends) {
  ends.clear();
  const Characters characters(text);
  Splitter splitter(characters, ends);
  const size_t n = characters.size();
  switch (kind) {
    case PreTokenizerKind::kGpt2:
      return splitter.gpt2(0, n);
    case PreTokenizerKind::kSmollm:
      return splitter.smollm(0, n);
    case PreTokenizerKind::kQwen2:
      return splitter.qwen(0, n, kLetter, 1);
    case PreTokenizerKind::kQwen35:
      return splitter.qwen(0, n, kLetter | kMark, 1);
    case PreTokenizerKind::kLlama3:
      return splitter.qwen(0, n, kLetter, 3);
    case PreTokenizerKind::kDefault:
      return splitter.fallback(0, n);
  }
}

}  // namespace ts
