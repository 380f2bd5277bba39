#include "text/utf8.h"

namespace ts {

Utf8Char decode_utf8(std::string_view text, size_t position) noexcept {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[position + i]); };
  const size_t left = text.size() - position;
  const uint8_t first = byte(0);
  Utf8Char result;
  if (first < 0x80) {
    result.code_point = first;
    result.valid = true;
    return result;
  }
  // The range of the second byte excludes overlong forms, surrogates and values above U+10FFFF.
  uint32_t length = 0;
  uint8_t low = 0x80, high = 0xBF;
  char32_t value = 0;
  if (first >= 0xC2 && first <= 0xDF) {
    length = 2;
    value = first & 0x1Fu;
  } else if (first >= 0xE0 && first <= 0xEF) {
    length = 3;
    value = first & 0x0Fu;
    if (first == 0xE0) low = 0xA0;
    if (first == 0xED) high = 0x9F;
  } else if (first >= 0xF0 && first <= 0xF4) {
    length = 4;
    value = first & 0x07u;
    if (first == 0xF0) low = 0x90;
    if (first == 0xF4) high = 0x8F;
  } else {
    return result;
  }
  for (uint32_t i = 1; i < length; ++i) {
    if (i >= left) {
      result.length = i;
      result.truncated = true;
      return result;
    }
    const uint8_t next = byte(i);
    if (next < low || next > high) {
      result.length = i;
      return result;
    }
    value = (value << 6) | (next & 0x3Fu);
    low = 0x80;
    high = 0xBF;
  }
  result.code_point = value;
  result.length = length;
  result.valid = true;
  return result;
}

void append_utf8(std::string& out, char32_t code_point) {
  const auto push = [&](char32_t byte) { out.push_back(static_cast<char>(byte)); };
  if (code_point < 0x80) {
    push(code_point);
  } else if (code_point < 0x800) {
    push(0xC0 | (code_point >> 6));
    push(0x80 | (code_point & 0x3F));
  } else if (code_point < 0x10000) {
    push(0xE0 | (code_point >> 12));
    push(0x80 | ((code_point >> 6) & 0x3F));
    push(0x80 | (code_point & 0x3F));
  } else {
    push(0xF0 | (code_point >> 18));
    push(0x80 | ((code_point >> 12) & 0x3F));
    push(0x80 | ((code_point >> 6) & 0x3F));
    push(0x80 | (code_point & 0x3F));
  }
}

void append_valid_utf8(std::string& out, std::string_view bytes) {
  size_t copied = 0;
  for (size_t i = 0; i < bytes.size();) {
    const Utf8Char c = decode_utf8(bytes, i);
    if (!c.valid) {
      out.append(bytes.substr(copied, i - copied));
      out.append(kReplacementCharacter);
      copied = i + c.length;
    }
    i += c.length;
  }
  out.append(bytes.substr(copied));
}

bool is_valid_utf8(std::string_view text) noexcept {
  for (size_t i = 0; i < text.size();) {
    const Utf8Char c = decode_utf8(text, i);
    if (!c.valid) return false;
    i += c.length;
  }
  return true;
}

}  // namespace ts
