// The vocabulary of Qwen 3.5 and later, which derived models share: the published ids of a chat
// prompt.
#include <algorithm>
#include <limits>
#include <sstream>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "golden_support.h"
#include "model/synthetic/shapes.h"
#include "text/chat_template.h"

namespace ts {
namespace {

using Ranks = std::unordered_map<std::string, int32_t>;

std::string from_base64(const std::string& text) {
  const std::string digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  uint32_t bits = 0;
  int n_bits = 0;
  for (const char c : text) {
    const size_t digit = digits.find(c);
    if (digit == std::string::npos) break;  // padding
    bits = bits << 6 | static_cast<uint32_t>(digit);
    n_bits += 6;
    if (n_bits >= 8) {
      n_bits -= 8;
      out.push_back(static_cast<char>(bits >> n_bits & 255));
    }
  }
  return out;
}

/// Bytes as byte-level vocabularies write them.
std::string mapped(const std::string& bytes) {
  static const std::vector<std::string> table = [] {
    std::vector<std::string> t;
    uint32_t next = 256;
    for (uint32_t b = 0; b < 256; ++b) {
      const bool plain = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
      const uint32_t point = plain ? b : next++;
      if (point < 128)
        t.push_back({static_cast<char>(point)});
      else
        t.push_back({static_cast<char>(0xC0 | point >> 6), static_cast<char>(0x80 | (point & 63))});
    }
    return t;
  }();
  std::string out;
  for (const char c : bytes)
    out += table[static_cast<unsigned char>(c)];
  return out;
}

/// The two parts that the merges below `rank` leave of a token, if they are two.
std::vector<std::string> parts_of(const std::string& token, int32_t rank, const Ranks& ranks) {
  std::vector<std::string> parts;
  for (const char c : token)
    parts.emplace_back(1, c);
  for (;;) {
    int32_t best = std::numeric_limits<int32_t>::max();
    size_t at = 0;
    for (size_t i = 0; i + 1 < parts.size(); ++i) {
      const auto found = ranks.find(parts[i] + parts[i + 1]);
      if (found != ranks.end() && found->second < rank && found->second < best) {
        best = found->second;
        at = i;
      }
    }
    if (best == std::numeric_limits<int32_t>::max()) return parts;
    parts[at] += parts[at + 1];
    parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(at) + 1);
  }
}

/// From lines of "<base64 of the bytes> <rank>", rank = id, as the tokenizer was published.
TokenizerData read_ranks(const std::filesystem::path& path) {
  TokenizerData data;
  data.model = "gpt2";
  data.pre = "qwen35";
  data.source = path.string();
  std::istringstream in(test::read_file(path));
  std::string text;
  int32_t rank = 0;
  Ranks ranks;
  std::vector<std::string> tokens;
  while (in >> text >> rank) {
    if (rank != static_cast<int32_t>(tokens.size())) throw std::runtime_error("ranks with a gap");
    tokens.push_back(from_base64(text));
    ranks.emplace(tokens.back(), rank);
  }
  for (int32_t id = 0; id < static_cast<int32_t>(tokens.size()); ++id) {
    const std::string& token = tokens[static_cast<size_t>(id)];
    data.tokens.push_back(mapped(token));
    data.types.push_back(TokenType::kNormal);
    if (token.size() < 2) continue;
    const auto parts = parts_of(token, id, ranks);
    if (parts.size() == 2) data.merges.push_back(mapped(parts[0]) + " " + mapped(parts[1]));
  }
  const SyntheticVocabulary& published = find_synthetic_shape("ternary-bonsai-2-27b").vocabulary;
  EXPECT_EQ(static_cast<int64_t>(tokens.size()), published.n_bpe);
  const auto add_unused = [&] {
    data.tokens.push_back("[PAD" + std::to_string(data.tokens.size()) + "]");
    data.types.push_back(TokenType::kUnused);
  };
  for (const std::string_view name : published.added) {
    if (name.empty()) {
      add_unused();
      continue;
    }
    data.tokens.emplace_back(name);
    data.types.push_back(name.ends_with("|>") ? TokenType::kControl : TokenType::kUserDefined);
  }
  while (static_cast<int64_t>(data.tokens.size()) < published.n_tokens)
    add_unused();
  data.eos = 248046;
  data.add_bos = false;
  return data;
}

const Tokenizer& qwen35() {
  static const auto tokenizer = Tokenizer::create(read_ranks(TS_QWEN35_RANKS));
  return *tokenizer;
}

TEST(Qwen35Tokenizer, IsReadWhole) {
  // Derived from the ranks: all but a few tokens that no order of merges reaches.
  EXPECT_GT(qwen35().data().merges.size(), 247500u);
  EXPECT_EQ(qwen35().find_token("<|im_start|>"), 248045);
  EXPECT_EQ(qwen35().find_token("<think>"), 248068);
  EXPECT_TRUE(qwen35().is_end(248044));
  EXPECT_TRUE(qwen35().is_end(248046));
}

TEST(Qwen35Tokenizer, ChatPrompt) {
  // A conversation of one question, as the family's templates write it.
  const auto chat = ChatTemplate::parse(
      test::read_file(test::testdata() / "jinja" / "templates" / "qwen3.jinja"));
  ChatRequest request;
  request.messages.push_back(
      {{"role", "user"}, {"content", "Explain in two sentences why the sky is blue."}});
  request.add_generation_prompt = true;
  const RenderedPrompt prompt = chat->render(request);
  EXPECT_THAT(qwen35().encode_marked(prompt.text, prompt.untrusted, true),
              testing::ElementsAre(248045, 846, 198, 814, 20139, 303, 1330, 22157, 3069, 279, 12515,
                                   369, 6105, 13, 248046, 198, 248045, 74455, 198));
}

}  // namespace
}  // namespace ts
