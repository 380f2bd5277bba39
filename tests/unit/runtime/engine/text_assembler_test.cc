// Assembling text from tokens: stop strings and characters split over tokens.
#include "runtime/text_assembler.h"

#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <tensorsharp/error.hpp>

#include "base/quote_text.h"
#include "text/tokenizer.h"

namespace ts {
namespace {

/// Pushes the pieces and returns what came out for each, then what finish() gave.
std::vector<std::string> run(std::vector<std::string> stop, const std::vector<std::string>& pieces,
                             bool* stopped = nullptr) {
  TextAssembler assembler(std::move(stop));
  std::vector<std::string> out;
  for (const std::string& p : pieces)
    out.push_back(assembler.push(p));
  out.push_back(assembler.finish());
  if (stopped != nullptr) *stopped = assembler.stopped();
  return out;
}

using Strings = std::vector<std::string>;

TEST(TextAssembler, WithoutStopsEverythingPassesAtOnce) {
  EXPECT_EQ(run({}, {"a", "", "bc"}), (Strings{"a", "", "bc", ""}));
}

TEST(TextAssembler, StopInsideOnePiece) {
  bool stopped = false;
  EXPECT_EQ(run({"END"}, {"one ENDtwo", "three"}, &stopped), (Strings{"one ", "", ""}));
  EXPECT_TRUE(stopped);
}

TEST(TextAssembler, StopAcrossPiecesIsHeldBack) {
  bool stopped = false;
  EXPECT_EQ(run({"END"}, {"oneE", "N", "D", "x"}, &stopped), (Strings{"one", "", "", "", ""}));
  EXPECT_TRUE(stopped);
}

TEST(TextAssembler, WhatOnlyBeganLikeAStopComesOut) {
  bool stopped = true;
  EXPECT_EQ(run({"END"}, {"oneE", "N", "ds"}, &stopped), (Strings{"one", "", "ENds", ""}));
  EXPECT_FALSE(stopped);
  EXPECT_EQ(run({"END"}, {"oneEN"}), (Strings{"one", "EN"}));
}

TEST(TextAssembler, SelfOverlappingStop) {
  EXPECT_EQ(run({"aab"}, {"a", "a", "a", "b", "c"}), (Strings{"", "", "a", "", "", ""}));
}

TEST(TextAssembler, TheStopThatIsCompleteFirstCounts) {
  EXPECT_EQ(run({"abcd", "bc"}, {"xabcd"}), (Strings{"xa", ""}));
  EXPECT_EQ(run({"bc", "abc"}, {"xabc"}), (Strings{"x", ""}));  // same end: the longer one
  EXPECT_EQ(run({"zzz", "\n\n"}, {"a\n", "\nb"}), (Strings{"a", "", ""}));
}

TEST(TextAssembler, BadStopStrings) {
  EXPECT_THROW(TextAssembler({""}), InvalidArgument);
  EXPECT_THROW(TextAssembler({"ok", "\xff"}), InvalidArgument);
  EXPECT_THROW(TextAssembler({"\xf0\x9f\x98"}), InvalidArgument);
}

/// Every token is one given byte string.
class StubTokenizer : public Tokenizer {
 public:
  explicit StubTokenizer(Strings pieces) : pieces_(std::move(pieces)) {}
  std::vector<TokenId> encode(std::string_view, const EncodeOptions&) const override { return {}; }
  std::vector<TokenId> encode_marked(std::string_view, std::span<const ByteRange>,
                                     bool) const override {
    return {};
  }
  std::string token_bytes(TokenId id, bool) const override {
    return pieces_[static_cast<size_t>(id)];
  }
  std::string decode(std::span<const TokenId>, bool) const override { return {}; }
  const std::string& token_text(TokenId id) const override {
    return pieces_[static_cast<size_t>(id)];
  }
  TokenType token_type(TokenId) const override { return TokenType::kNormal; }
  std::optional<TokenId> find_token(std::string_view) const override { return std::nullopt; }
  int32_t n_vocab() const override { return static_cast<int32_t>(pieces_.size()); }
  bool is_end(TokenId) const override { return false; }
  const TokenizerData& data() const override { return data_; }
  bool adds_bos() const override { return false; }
  bool adds_eos() const override { return false; }
  bool strips_leading_space() const override { return false; }

 private:
  Strings pieces_;
  TokenizerData data_;
};

/// All text of the pieces as tokens, through the decoder and the assembler; every part is UTF-8.
std::string stream(const Strings& pieces, Strings stop, bool* stopped = nullptr) {
  StreamDecoder decoder(std::make_shared<StubTokenizer>(pieces), false, true);
  TextAssembler assembler(std::move(stop));
  std::string all;
  const auto take = [&](const std::string& part) {
    EXPECT_EQ(find_invalid_utf8(part), std::string_view::npos);
    all += part;
  };
  for (size_t i = 0; i < pieces.size() && !assembler.stopped(); ++i)
    take(assembler.push(decoder.push(static_cast<TokenId>(i))));
  if (!assembler.stopped()) take(assembler.push(decoder.finish()));
  if (!assembler.stopped()) take(assembler.finish());
  if (stopped != nullptr) *stopped = assembler.stopped();
  return all;
}

TEST(Streaming, CharactersSplitOverTokens) {
  EXPECT_EQ(stream({"\xf0", "\x9f", "\x98", "\x80", "!"}, {}), "\xf0\x9f\x98\x80!");
  // Cut in the middle of a character: one replacement at the very end.
  EXPECT_EQ(stream({"a", "\xf0", "\x9f"}, {}), "a\xef\xbf\xbd");
  EXPECT_EQ(stream({"a", "\xff", "b"}, {}),
            "a\xef\xbf\xbd"
            "b");
  EXPECT_EQ(stream({"\x80", "b"}, {}),
            "\xef\xbf\xbd"
            "b");
}

TEST(Streaming, StopStringsMadeOfSplitCharacters) {
  bool stopped = false;
  EXPECT_EQ(stream({"x", "\xf0\x9f", "\x98\x80", "y"}, {"\xf0\x9f\x98\x80"}, &stopped), "x");
  EXPECT_TRUE(stopped);
  // Another character that begins with the same bytes is not held back for ever.
  EXPECT_EQ(stream({"x", "\xf0\x9f", "\x98\x81", "y"}, {"\xf0\x9f\x98\x80"}, &stopped),
            "x\xf0\x9f\x98\x81y");
  EXPECT_FALSE(stopped);
}

}  // namespace
}  // namespace ts
