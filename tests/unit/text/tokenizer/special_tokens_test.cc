#include "text/special_tokens.h"

#include <algorithm>
#include <random>

#include <gtest/gtest.h>

#include <tensorsharp/error.hpp>

namespace ts {
namespace {

using Candidate = SpecialTokens::Candidate;

/// The rule as it reads: every candidate, longest first, cut out of every raw fragment.
std::vector<TextFragment> by_the_rule(std::vector<Candidate> candidates, const std::string& text,
                                      bool parse_special, const std::vector<ByteRange>& untrusted) {
  std::stable_sort(candidates.begin(), candidates.end(), [](const auto& a, const auto& b) {
    return a.text.size() != b.text.size() ? a.text.size() > b.text.size() : a.id < b.id;
  });
  std::vector<TextFragment> fragments;
  if (!text.empty()) fragments.push_back({0, text.size(), -1});
  for (const Candidate& c : candidates) {
    std::vector<TextFragment> next;
    for (const TextFragment& f : fragments) {
      if (f.id >= 0) {
        next.push_back(f);
        continue;
      }
      size_t raw = f.begin;
      for (size_t at = f.begin; at + c.text.size() <= f.end;) {
        const size_t end = at + c.text.size();
        const bool touches = std::any_of(
            untrusted.begin(), untrusted.end(),
            [&](const ByteRange& r) { return r.begin < r.end && r.begin < end && r.end > at; });
        const bool allowed = c.always || (parse_special && !touches);
        if (!allowed || text.compare(at, c.text.size(), c.text) != 0) {
          ++at;
          continue;
        }
        if (at > raw) next.push_back({raw, at, -1});
        next.push_back({at, end, c.id});
        raw = at = end;
      }
      if (raw < f.end) next.push_back({raw, f.end, -1});
    }
    fragments = std::move(next);
  }
  return fragments;
}

std::string show(const std::vector<TextFragment>& fragments) {
  std::string out;
  for (const TextFragment& f : fragments) {
    out += std::to_string(f.begin) + "-" + std::to_string(f.end) + ":" + std::to_string(f.id) + " ";
  }
  return out;
}

TEST(SpecialTokens, LongestFirstIsNotLeftmostFirst) {
  const SpecialTokens tokens({{"abc", 1, true}, {"bcde", 2, true}});
  EXPECT_EQ(show(tokens.partition("abcde", false, {})), "0-1:-1 1-5:2 ");
  // What a longer one took a part of may still hold a shorter one.
  const SpecialTokens more({{"abc", 1, true}, {"bcde", 2, true}, {"a", 3, true}});
  EXPECT_EQ(show(more.partition("abcde", false, {})), "0-1:3 1-5:2 ");
}

TEST(SpecialTokens, ControlTokensNeedPermission) {
  const SpecialTokens tokens({{"<c>", 1, false}, {"<u>", 2, true}});
  EXPECT_EQ(show(tokens.partition("<c><u>", false, {})), "0-3:-1 3-6:2 ");
  EXPECT_EQ(show(tokens.partition("<c><u>", true, {})), "0-3:1 3-6:2 ");
  // Inside, across either border, and next to an untrusted range.
  const std::vector<ByteRange> inside = {{0, 6}}, left = {{0, 1}}, right = {{2, 5}},
                               next = {{3, 6}};
  EXPECT_EQ(show(tokens.partition("<c><u>", true, inside)), "0-3:-1 3-6:2 ");
  EXPECT_EQ(show(tokens.partition("<c><u>", true, left)), "0-3:-1 3-6:2 ");
  EXPECT_EQ(show(tokens.partition("<c><u>", true, right)), "0-3:-1 3-6:2 ");
  EXPECT_EQ(show(tokens.partition("<c><u>", true, next)), "0-3:1 3-6:2 ");
}

TEST(SpecialTokens, EqualsTheRuleOnRandomTexts) {
  std::mt19937 random(11);
  const auto word = [&](size_t most) {
    std::string s;
    for (size_t n = 1 + random() % most; n > 0; --n)
      s += static_cast<char>('a' + random() % 2);
    return s;
  };
  size_t found = 0;
  for (int round = 0; round < 4000; ++round) {
    std::vector<Candidate> candidates;
    for (TokenId id = 0; id < static_cast<TokenId>(1 + random() % 8); ++id) {
      const std::string text = word(7);
      const bool known = std::any_of(candidates.begin(), candidates.end(),
                                     [&](const auto& c) { return c.text == text; });
      if (!known) candidates.push_back({text, id, random() % 2 == 0});
    }
    const std::string text = word(30);
    std::vector<ByteRange> untrusted;
    for (size_t at = random() % 10; at < text.size(); at += random() % 10) {
      const size_t end = std::min(text.size(), at + random() % 6);
      untrusted.push_back({at, end});
      at = end;
    }
    const bool parse_special = random() % 4 != 0;
    const auto got = SpecialTokens(candidates).partition(text, parse_special, untrusted);
    ASSERT_EQ(show(got), show(by_the_rule(candidates, text, parse_special, untrusted))) << text;
    found += got.size();
  }
  EXPECT_GT(found, 4000u);
}

TEST(SpecialTokens, VeryLongTextsAreRefused) {
  EXPECT_THROW(SpecialTokens({{std::string(SpecialTokens::kMaxBytes + 1, 'x'), 0, true}}),
               FormatError);
  EXPECT_EQ(show(SpecialTokens({}).partition("abc", true, {})), "0-3:-1 ");
  EXPECT_EQ(show(SpecialTokens({{"", 0, true}}).partition("", true, {})), "");
}

}  // namespace
}  // namespace ts
