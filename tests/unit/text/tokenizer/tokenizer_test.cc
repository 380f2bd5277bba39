#include "text/tokenizer.h"

#include <algorithm>
#include <limits>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <tensorsharp/error.hpp>

#include "base/log.h"
#include "small_vocabularies.h"

namespace ts {
namespace {

using Ids = std::vector<TokenId>;
using test::small_bpe;
using test::small_spm;
using testing::AllOf;
using testing::HasSubstr;

template <typename E>
std::string error_of(TokenizerData data, const std::string& force_pre = {}) {
  try {
    Tokenizer::create(std::move(data), force_pre);
  } catch (const E& e) {
    return e.what();
  }
  ADD_FAILURE() << "no such error";
  return {};
}

/// Counts the warnings while it lives.
class Warnings {
 public:
  Warnings() {
    set_log_sink([this](LogLevel level, std::string_view line) {
      if (level == LogLevel::kWarning) lines.emplace_back(line);
    });
  }
  ~Warnings() { set_log_sink({}); }
  std::vector<std::string> lines;
};

TEST(ByteLevelBpe, MergesByRank) {
  const auto t = Tokenizer::create(small_bpe());
  EXPECT_EQ(t->encode("hello", {}), (Ids{259}));
  EXPECT_EQ(t->encode("hell hel", {}), (Ids{258, ' ', 256, 'l'}));
  EXPECT_EQ(t->encode("llll", {}), (Ids{257, 257}));
  EXPECT_EQ(t->encode("lll", {}), (Ids{257, 'l'}));
  EXPECT_EQ(t->encode("", {}), Ids{});
  EXPECT_EQ(t->encode("\xFF\xE2\x82", {}), (Ids{0xFF, 0xE2, 0x82}));
  EXPECT_EQ(t->decode(t->encode("h\xC3\xA9llo\n\t\x01", {}), false), "h\xC3\xA9llo\n\t\x01");
}

TEST(ByteLevelBpe, WholePiecesWinInTheLlama3Family) {
  TokenizerData d = small_bpe();
  d.tokens.emplace_back("xyz");
  d.types.push_back(TokenType::kNormal);
  EXPECT_EQ(Tokenizer::create(d)->encode("xyz", {}), (Ids{'x', 'y', 'z'}));
  d.pre = "llama-bpe";
  const auto t = Tokenizer::create(d);
  EXPECT_EQ(t->encode("xyz", {}), (Ids{264}));
  EXPECT_FALSE(t->adds_bos());  // the family adds one, but there is none
  d.bos = 261;
  EXPECT_TRUE(Tokenizer::create(d)->adds_bos());
  d.add_bos = false;
  EXPECT_FALSE(Tokenizer::create(d)->adds_bos());
}

TEST(ByteLevelBpe, ManyThreadsShareOneTokenizer) {
  const auto t = Tokenizer::create(small_bpe());
  std::string text;
  for (int i = 0; i < 20000; ++i)
    text += "hello " + std::to_string(i) + " ";
  const Ids wanted = t->encode(text, {});
  std::vector<Ids> got(4);
  std::vector<std::thread> threads;
  for (Ids& ids : got)
    threads.emplace_back([&] { ids = t->encode(text, {}); });
  for (std::thread& thread : threads)
    thread.join();
  for (const Ids& ids : got)
    EXPECT_EQ(ids, wanted);
  EXPECT_EQ(t->decode(wanted, false), text);
}

TEST(ByteLevelBpe, UnknownPreTokenizersAreRefusedByName) {
  TokenizerData d = small_bpe();
  d.pre = "brand-new";
  EXPECT_THAT(error_of<Unsupported>(d), AllOf(HasSubstr("small.gguf"), HasSubstr("brand-new"),
                                              HasSubstr("qwen35"), HasSubstr("--force-pre")));
  EXPECT_EQ(Tokenizer::create(d, "gpt-2")->encode("hello", {}), (Ids{259}));
  EXPECT_THAT(error_of<InvalidArgument>(d, "nonsense"), HasSubstr("nonsense"));
  d.pre.clear();
  EXPECT_THAT(error_of<Unsupported>(d), HasSubstr("names no pre-tokenizer"));
  d.pre = "default";
  Warnings warnings;
  EXPECT_NE(Tokenizer::create(d), nullptr);
  EXPECT_EQ(warnings.lines.size(), 1u);
}

TEST(ByteLevelBpe, MissingBytesAreLeftOutOrUnknown) {
  TokenizerData d;
  d.model = "gpt2";
  d.pre = "gpt-2";
  d.tokens = {"a", "b", "?", "ab"};
  d.merges = {"a b"};
  {
    Warnings warnings;
    const auto t = Tokenizer::create(d);
    // What is left merges as if the byte had never been there.
    EXPECT_EQ(t->encode("axb", {}), (Ids{3}));
    EXPECT_EQ(t->encode("c", {}), Ids{});
    EXPECT_EQ(t->encode("a\xF1", {}), (Ids{0}));
    ASSERT_EQ(warnings.lines.size(), 1u);
    EXPECT_THAT(warnings.lines[0], HasSubstr("0x78"));
  }
  d.unk = 2;
  EXPECT_EQ(Tokenizer::create(d)->encode("axb", {}), (Ids{0, 2, 1}));
}

TEST(ByteLevelBpe, MissingBytesThatMergesUseStillMerge) {
  TokenizerData d;
  d.model = "gpt2";
  d.pre = "gpt-2";
  d.tokens = {"a", "ax"};
  d.merges = {"a x"};
  EXPECT_EQ(Tokenizer::create(d)->encode("axx", {}), (Ids{1}));
}

// The unknown token of many models is the token that ends a text.
TEST(Vocabulary, TheUnknownTokenIsNeverAControlToken) {
  for (const TokenType type : {TokenType::kControl, TokenType::kNormal, TokenType::kUnknown}) {
    TokenizerData d;
    d.model = "gpt2";
    d.pre = "gpt-2";
    d.tokens = {"<|endoftext|>", "a", "b", "<|start|>"};
    d.types = {type, TokenType::kNormal, TokenType::kNormal, type};
    d.unk = d.eos = 0;
    d.bos = 3;
    EXPECT_EQ(Tokenizer::create(d)->encode("a\xF1\x80\x80\x80"
                                           "b",
                                           {}),
              (Ids{1, 2}));
    d.unk = 3;
    EXPECT_EQ(Tokenizer::create(d)->encode("a\xF1\x80\x80\x80"
                                           "b",
                                           {}),
              (Ids{1, 2}));

    d.model = "llama";
    d.scores = {0, 0, 0, 0};
    d.add_space_prefix = false;
    for (const TokenId unknown : {0, 3}) {
      d.unk = unknown;
      EXPECT_EQ(Tokenizer::create(d)->encode("a\xC3\xA9"
                                             "b",
                                             {.add_special = false}),
                (Ids{1, 2}));
    }
  }
}

TEST(Tokenizer, EveryFaultNamesTheFile) {
  TokenizerData d = small_bpe();
  d.tokens[261].assign(2000, '<');
  EXPECT_THAT(error_of<FormatError>(d), AllOf(HasSubstr("small.gguf"), HasSubstr("2000 bytes")));
  d = small_bpe();
  d.merges.push_back("he");
  EXPECT_THAT(error_of<FormatError>(d), AllOf(HasSubstr("small.gguf"), HasSubstr("merge 4")));
}

TEST(Vocabulary, TheDefaultUnknownTokenIsNoText) {
  TokenizerData d;
  d.model = "llama";
  d.tokens = {"a", "b", "c"};
  d.scores = {0, 0, 0};
  d.add_space_prefix = false;
  Warnings warnings;
  EXPECT_EQ(Tokenizer::create(d)->encode("axb", {.add_special = false}), (Ids{0, 1}));
  EXPECT_EQ(warnings.lines.size(), 1u);
  d.tokens[0] = "<unk>";
  EXPECT_EQ(Tokenizer::create(d)->encode("bxb", {.add_special = false}), (Ids{1, 0, 1}));
}

TEST(SentencePiece, MergesByScore) {
  const auto t = Tokenizer::create(small_spm());
  const EncodeOptions plain{.add_special = false};
  EXPECT_EQ(t->encode("abc", plain), (Ids{268, 267}));  // bc before ab
  EXPECT_EQ(t->encode("ab", plain), (Ids{265, 266}));
  EXPECT_EQ(t->encode("a", plain), (Ids{268}));
  EXPECT_EQ(t->encode("a", {}), (Ids{1, 268}));
  EXPECT_EQ(t->encode("", plain), Ids{});
  // Characters without a token, valid or not, become bytes.
  EXPECT_EQ(t->encode("a\xC3\xA9", plain), (Ids{268, 3 + 0xC3, 3 + 0xA9}));
  EXPECT_EQ(t->encode("a\xFF", plain), (Ids{268, 3 + 0xFF}));
  // An unused token is a step to a longer one, but never emitted.
  EXPECT_EQ(t->encode("accc", plain), (Ids{268, 271}));
  EXPECT_EQ(t->encode("acc", plain), (Ids{268, 261, 261}));
}

TEST(SentencePiece, SpaceInFront) {
  TokenizerData d = small_spm();
  const auto with = Tokenizer::create(d);
  EXPECT_TRUE(with->strips_leading_space());
  EXPECT_EQ(with->decode(with->encode("a b", {}), false), "a b");
  EXPECT_EQ(with->decode(with->encode(" a", {}), false), " a");
  // User-defined texts hold spaces and are found before merging.
  EXPECT_EQ(with->encode("  a", {.add_special = false}), (Ids{272, 268}));
  d.add_space_prefix = false;
  const auto without = Tokenizer::create(d);
  EXPECT_EQ(without->encode("a", {.add_special = false}), (Ids{259}));
  EXPECT_EQ(without->decode(Ids{268}, false), " a");
}

TEST(SentencePiece, TextNeverBecomesControlOrByteTokens) {
  const auto t = Tokenizer::create(small_spm());
  for (const char* text : {"<s>", "</s>", "<unk>", "<0x41>"}) {
    for (const TokenId id : t->encode(text, {.add_special = false})) {
      EXPECT_NE(t->token_type(id), TokenType::kControl) << text;
      EXPECT_NE(t->token_type(id), TokenType::kUnknown) << text;
    }
    EXPECT_EQ(t->decode(t->encode(text, {}), false), text);
  }
}

TEST(SentencePiece, MissingBytesBecomeUnknown) {
  TokenizerData d;
  d.model = "llama";
  d.tokens = {"<unk>", "a"};
  d.scores = {0, 0};
  d.types = {TokenType::kUnknown, TokenType::kNormal};
  d.add_space_prefix = false;
  EXPECT_EQ(Tokenizer::create(d)->encode("a\xC3\xA9", {.add_special = false}), (Ids{1, 0}));
}

TEST(Tokenizer, BeginOfSequenceAppearsOnce) {
  TokenizerData d = small_bpe();
  d.bos = 261;
  d.eos = 262;
  d.add_bos = d.add_eos = true;
  const auto t = Tokenizer::create(d);
  EXPECT_EQ(t->encode("hello", {}), (Ids{261, 259, 262}));
  EXPECT_EQ(t->encode("hello", {.add_special = false}), (Ids{259}));
  EXPECT_EQ(t->encode("<|im_start|>hello<|im_end|>", {.parse_special = true}),
            (Ids{261, 259, 262}));
  EXPECT_EQ(t->encode_marked("<|im_start|>hello", {}, true), (Ids{261, 259, 262}));
  EXPECT_EQ(t->encode("", {}), (Ids{261, 262}));
  // A user who writes the text of the token does not take its place.
  const std::vector<ByteRange> all = {{0, 12}};
  const Ids ids = t->encode_marked("<|im_start|>hello", all, true);
  EXPECT_EQ(std::count(ids.begin(), ids.end(), 261), 1);
  EXPECT_EQ(ids.size(), 1 + 12 + 1 + 1u);
}

TEST(Tokenizer, ControlTokensNeedPermission) {
  const auto t = Tokenizer::create(small_bpe());
  const std::string text = "<|im_end|><think>";
  EXPECT_EQ(t->encode(text, {.parse_special = true}), (Ids{262, 263}));
  const Ids plain = t->encode(text, {});
  EXPECT_EQ(plain.size(), 11u);
  EXPECT_EQ(plain.back(), 263);
  EXPECT_EQ(t->decode(plain, false), text);
  for (const char* special : {"<|endoftext|>", "<|im_start|>", "<|im_end|>"}) {
    for (const TokenId id : t->encode(special, {}))
      EXPECT_LT(id, 256);
  }
  const std::vector<ByteRange> bad = {{5, 3}}, outside = {{0, 99}}, unsorted = {{4, 6}, {2, 3}};
  EXPECT_THROW(t->encode_marked(text, bad, false), InvalidArgument);
  EXPECT_THROW(t->encode_marked(text, outside, false), InvalidArgument);
  EXPECT_THROW(t->encode_marked(text, unsorted, false), InvalidArgument);
}

TEST(Tokenizer, EndTokens) {
  TokenizerData d = small_bpe();
  const auto t = Tokenizer::create(d);
  EXPECT_TRUE(t->is_end(260));
  EXPECT_TRUE(t->is_end(262));
  EXPECT_FALSE(t->is_end(261));
  EXPECT_FALSE(t->is_end(-1));
  EXPECT_FALSE(t->is_end(1 << 30));
  EXPECT_EQ(t->data().eot, 262);
  d.eos = 259;
  d.eom = 263;
  d.fim_stop = {258, 9999};
  const auto more = Tokenizer::create(d);
  EXPECT_TRUE(more->is_end(259) && more->is_end(263) && more->is_end(258));
  EXPECT_EQ(more->token_bytes(259, false), "");  // an end token is not shown
  EXPECT_EQ(more->token_bytes(259, true), "hello");
  // Listed as ordinary, an end token must still be out of the user's reach.
  d.types.clear();
  const auto untyped = Tokenizer::create(d);
  EXPECT_EQ(untyped->token_type(262), TokenType::kControl);
  EXPECT_EQ(untyped->encode("<|im_end|>", {}).size(), 10u);
  EXPECT_EQ(untyped->encode("<|im_end|>", {.parse_special = true}), (Ids{262}));
}

TEST(Tokenizer, DuplicateTextsGetTheLowestId) {
  TokenizerData d = small_bpe();
  d.tokens.emplace_back("hello");
  d.types.push_back(TokenType::kNormal);
  d.tokens.emplace_back("he");
  d.types.push_back(TokenType::kNormal);
  Warnings warnings;
  const auto t = Tokenizer::create(d);
  EXPECT_THAT(warnings.lines, testing::ElementsAre(HasSubstr("2 token texts occur twice")));
  EXPECT_EQ(t->encode("hello", {}), (Ids{259}));
  EXPECT_EQ(t->decode(Ids{259, 264, 265}, false), "hellohellohe");
}

TEST(Tokenizer, InconsistentDataIsRefused) {
  TokenizerData d = small_spm();
  d.types.pop_back();
  EXPECT_THAT(error_of<FormatError>(d), HasSubstr("272 token types"));
  d = small_spm();
  d.scores.pop_back();
  EXPECT_THAT(error_of<FormatError>(d), HasSubstr("272 scores"));
  d = small_spm();
  d.scores[5] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_THAT(error_of<FormatError>(d), HasSubstr("score of token 5"));
  d = small_spm();
  d.types[7] = static_cast<TokenType>(77);
  EXPECT_THAT(error_of<FormatError>(d), HasSubstr("type 77"));
  d = small_spm();
  d.tokens[3] = "<0xZZ>";
  EXPECT_THAT(error_of<FormatError>(d), HasSubstr("token 3"));
  d = small_bpe();
  d.merges.emplace_back("nospace");
  EXPECT_THAT(error_of<FormatError>(d), HasSubstr("merge 4"));
  d = small_bpe();
  d.tokens.clear();
  d.types.clear();
  EXPECT_THAT(error_of<FormatError>(d), HasSubstr("no tokens"));
  d = small_bpe();
  d.model = "bert";
  EXPECT_THAT(error_of<Unsupported>(d), HasSubstr("bert"));
  const auto t = Tokenizer::create(small_bpe());
  EXPECT_THROW(t->token_bytes(264, true), InvalidArgument);
  EXPECT_THROW(t->token_text(-1), InvalidArgument);
  EXPECT_THROW(t->decode(Ids{0, 1 << 30}, true), InvalidArgument);
}

TEST(Tokenizer, DefaultIdsOutsideTheVocabularyAreDropped) {
  TokenizerData d;
  d.model = "llama";
  d.tokens = {"a"};
  d.scores = {0};
  const auto t = Tokenizer::create(d);
  EXPECT_FALSE(t->data().bos);
  EXPECT_FALSE(t->adds_bos());
  EXPECT_FALSE(t->data().eos);
}

std::string stream(const std::shared_ptr<const Tokenizer>& t, const Ids& ids,
                   bool continues = false) {
  StreamDecoder decoder(t, false, continues);
  std::string out;
  for (const TokenId id : ids) {
    const std::string part = decoder.push(id);
    EXPECT_EQ(part.find("\xF0\x9F\x98"), part.find("\xF0\x9F\x98\x80")) << "a part of a character";
    out += part;
  }
  return out + decoder.finish();
}

TEST(StreamDecoder, HoldsBackIncompleteCharacters) {
  const auto t = Tokenizer::create(small_bpe());
  StreamDecoder decoder(t, false);
  EXPECT_EQ(decoder.push(0xF0), "");
  EXPECT_EQ(decoder.push(0x9F), "");
  EXPECT_EQ(decoder.push(0x98), "");
  EXPECT_EQ(decoder.push(0x80), "\xF0\x9F\x98\x80");
  EXPECT_EQ(decoder.push(262), "");
  EXPECT_EQ(decoder.push('a'), "a");
  EXPECT_EQ(decoder.finish(), "");

  EXPECT_EQ(stream(t, {'x', 0xF0, 0x9F}), "x\xEF\xBF\xBD");  // cut: one replacement
  EXPECT_EQ(stream(t, {0xFF, 'x'}), "\xEF\xBF\xBDx");
  EXPECT_EQ(stream(t, {0x80}), "\xEF\xBF\xBD");
  EXPECT_EQ(stream(t, {0xE2, 0x82, 'x'}), "\xEF\xBF\xBDx");
  EXPECT_EQ(stream(t, {0xED, 0xA0, 0x80}), "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD");  // surrogate
  EXPECT_EQ(stream(t, {263}), "<think>");
}

TEST(StreamDecoder, EqualsWholeDecoding) {
  const auto bpe = Tokenizer::create(small_bpe());
  const auto spm = Tokenizer::create(small_spm());
  uint32_t state = 3;
  for (int round = 0; round < 2000; ++round) {
    Ids bpe_ids, spm_ids;
    for (uint32_t n = (state >> 20) % 12; n > 0; --n) {
      state = state * 1664525u + 1013904223u;
      bpe_ids.push_back(static_cast<TokenId>((state >> 8) % 264));
      spm_ids.push_back(static_cast<TokenId>((state >> 8) % 273));
    }
    state = state * 1664525u + 1013904223u;
    EXPECT_EQ(stream(bpe, bpe_ids), bpe->decode(bpe_ids, false));
    EXPECT_EQ(stream(spm, spm_ids), spm->decode(spm_ids, false));
  }
}

TEST(StreamDecoder, LeadingSpace) {
  const auto t = Tokenizer::create(small_spm());
  EXPECT_EQ(stream(t, {1, 268, 268}), "a a");
  EXPECT_EQ(stream(t, {268, 268}, true), " a a");
}

}  // namespace
}  // namespace ts
