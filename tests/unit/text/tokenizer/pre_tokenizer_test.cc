#include "text/pre_tokenizer.h"

#include <random>

#include <gtest/gtest.h>

namespace ts {
namespace {

using Pieces = std::vector<std::string>;

Pieces pieces(const char* pre, std::string_view text) {
  std::vector<uint32_t> ends;
  pre_tokenize(find_pre_tokenizer(pre)->kind, text, ends);
  Pieces out;
  size_t begin = 0;
  for (const uint32_t end : ends) {
    out.emplace_back(text.substr(begin, end - begin));
    begin = end;
  }
  EXPECT_EQ(begin, text.size());
  return out;
}

void expect(std::initializer_list<const char*> names, std::string_view text, const Pieces& wanted) {
  for (const char* name : names)
    EXPECT_EQ(pieces(name, text), wanted) << name << ": " << text;
}

TEST(PreTokenizer, Contractions) {
  expect({"qwen2", "qwen35", "llama-bpe"}, "I'm WE'LL don't",
         {"I", "'m", " WE", "'LL", " don", "'t"});
  expect({"gpt-2", "smollm"}, "I'm WE'LL don't", {"I", "'m", " WE", "'", "LL", " don", "'t"});
  expect({"qwen2", "gpt-2"}, "'", {"'"});
  expect({"qwen2"}, "'r", {"'r"});
}

TEST(PreTokenizer, WhiteSpace) {
  const char* text = "  two  spaces\n\n  x\n";
  expect({"qwen2", "qwen35", "llama-bpe"}, text,
         {" ", " two", " ", " spaces", "\n\n", " ", " x", "\n"});
  expect({"gpt-2", "smollm"}, text, {" ", " two", " ", " spaces", "\n\n ", " x", "\n"});
  expect({"qwen2", "qwen35", "llama-bpe", "gpt-2", "smollm", "default"}, "end   ", {"end", "   "});
  expect({"qwen2", "qwen35", "llama-bpe"}, "\t\tif (a) {  // c",
         {"\t", "\tif", " (", "a", ")", " {", " ", " //", " c"});
  // White space beyond ASCII; U+180E is not white space, U+0085 is.
  expect({"qwen2"}, "a\u00A0\u00A0b", {"a", "\u00A0", "\u00A0b"});
  expect({"gpt-2"}, "a\u3000b", {"a", "\u3000", "b"});
  expect({"gpt-2"}, "a\u180E!", {"a", "\u180E!"});
  expect({"gpt-2"}, "!\u0085", {"!", "\u0085"});
  expect({"qwen2"}, "x \r\n \n  y", {"x", " \r\n \n", " ", " y"});
}

TEST(PreTokenizer, Digits) {
  const char* text = "a 2025 12345.6%";
  expect({"qwen2", "qwen35", "smollm"}, text,
         {"a", " ", "2", "0", "2", "5", " ", "1", "2", "3", "4", "5", ".", "6", "%"});
  expect({"llama-bpe"}, text, {"a", " ", "202", "5", " ", "123", "45", ".", "6", "%"});
  expect({"gpt-2"}, text, {"a", " 2025", " 12345", ".", "6", "%"});
  expect({"qwen2"}, "\u00BD\u0663", {"\u00BD", "\u0663"});  // No and Nd
}

TEST(PreTokenizer, CodeAndSymbols) {
  const char* text = "x=[1,2];\r\n\tfoo()";
  expect({"qwen2", "qwen35", "llama-bpe"}, text,
         {"x", "=[", "1", ",", "2", "];\r\n", "\tfoo", "()"});
  expect({"gpt-2", "smollm"}, text, {"x", "=[", "1", ",", "2", "];", "\r\n", "\t", "foo", "()"});
  expect({"qwen2"}, "(x):\n", {"(x", "):\n"});
  expect({"qwen2"}, "a->b", {"a", "->", "b"});
}

TEST(PreTokenizer, CombiningMarks) {
  const std::string text = " \u0915\u094D\u0937\u093F";
  expect({"qwen35"}, text, {text});
  expect({"qwen2", "llama-bpe"}, text, {" \u0915", "\u094D\u0937", "\u093F"});
}

TEST(PreTokenizer, Default) {
  expect({"default"}, "a+b 12345", {"a", "+", "b", " ", "123", "45"});
  expect({"default"}, "it's", {"it", "'", "s"});
}

TEST(PreTokenizer, InvalidBytesAreSymbols) {
  for (const char* name : {"qwen2", "qwen35", "llama3", "gpt-2", "smollm", "default"}) {
    expect({name}, "a\xFF\xFE", {"a", "\xFF\xFE"});
  }
  expect({"qwen2"}, "\xC3", {"\xC3"});
}

TEST(PreTokenizer, AnyBytesAreCoveredWithoutEmptyPieces) {
  std::mt19937 random(7);
  const std::string alphabet = std::string(" \n\r\t'aS1.,\xC3\xA9\xCC\x81\xE2\x80\x83\xFF") + '\0';
  for (int round = 0; round < 3000; ++round) {
    std::string text;
    for (size_t n = random() % 24; n > 0; --n)
      text += alphabet[random() % alphabet.size()];
    for (const char* name : {"qwen2", "qwen35", "llama3", "gpt-2", "smollm", "default"}) {
      for (const std::string& piece : pieces(name, text))
        EXPECT_FALSE(piece.empty());
    }
  }
}

TEST(PreTokenizer, NamesAreKnownExactly) {
  EXPECT_EQ(find_pre_tokenizer("qwen3"), nullptr);
  EXPECT_EQ(find_pre_tokenizer(""), nullptr);
  EXPECT_EQ(find_pre_tokenizer("deepseek-r1-qwen")->kind, PreTokenizerKind::kQwen2);
  EXPECT_EQ(find_pre_tokenizer("starcoder")->kind, PreTokenizerKind::kSmollm);
  EXPECT_TRUE(find_pre_tokenizer("llama-v3")->llama3_family);
  EXPECT_FALSE(find_pre_tokenizer("smaug-bpe")->llama3_family);
  EXPECT_NE(known_pre_tokenizers().find("qwen35, llama-bpe"), std::string::npos);
}

}  // namespace
}  // namespace ts
