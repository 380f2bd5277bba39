// Long runs of one kind of character: linear time, little stack, and nothing lost.
#include <functional>
#include <stdexcept>

#include <gtest/gtest.h>
#include <pthread.h>
#include <time.h>

#include "golden_support.h"
#include "text/pre_tokenizer.h"

namespace ts {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr double kMaxSeconds = 30;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
constexpr double kMaxSeconds = 30;
#else
constexpr double kMaxSeconds = 1;
#endif
#else
constexpr double kMaxSeconds = 1;
#endif

/// Runs `work` on a thread with 256 kB of stack.
void on_small_stack(const std::function<void()>& work) {
  pthread_attr_t attributes;
  ASSERT_EQ(pthread_attr_init(&attributes), 0);
  ASSERT_EQ(pthread_attr_setstacksize(&attributes, 256 * 1024), 0);
  pthread_t thread;
  auto start = [](void* f) -> void* {
    (*static_cast<const std::function<void()>*>(f))();
    return nullptr;
  };
  ASSERT_EQ(pthread_create(&thread, &attributes, start,
                           const_cast<void*>(static_cast<const void*>(&work))),
            0);
  pthread_join(thread, nullptr);
  pthread_attr_destroy(&attributes);
}

/// Processor time of this thread, so that a busy machine does not matter.
double thread_seconds() {
  timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

std::string repeat(std::string_view unit, size_t bytes) {
  std::string out;
  while (out.size() < bytes)
    out += unit;
  return out;
}

std::vector<std::pair<std::string, std::string>> long_texts() {
  constexpr size_t kBytes = 1 << 20;
  std::string base64;
  uint32_t state = 1;
  while (base64.size() < kBytes) {
    state = state * 1664525u + 1013904223u;
    base64 += "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"[state >> 26];
  }
  return {{"letters", repeat("A", kBytes)},
          {"spaces", repeat(" ", kBytes)},
          {"spaces and a letter", repeat(" ", kBytes) + "x"},
          {"digits", repeat("1234567890", kBytes)},
          {"newlines", repeat("\n", kBytes)},
          {"blank lines", repeat(" \n", kBytes)},
          {"cjk", repeat("\xE5\xA4\xA9\xE5\x9C\xB0\xE7\x8E\x84", kBytes)},
          {"base64", base64},
          {"symbols", repeat("=-", kBytes)},
          {"combining marks", repeat("\xCC\x81", kBytes)},
          {"emoji", repeat("\xF0\x9F\x98\x80", kBytes)},
          {"not utf-8", repeat("\xFF\xC3", kBytes)},
          {"angle brackets", repeat("<", kBytes)}};
}

void expect_fast(const Tokenizer& tokenizer, const std::string& label) {
  for (const auto& named : long_texts()) {
    const std::string &name = named.first, &text = named.second;
    on_small_stack([&] {
      const double begin = thread_seconds();
      const auto ids = tokenizer.encode(text, {.parse_special = true});
      const double seconds = thread_seconds() - begin;
      EXPECT_LT(seconds, kMaxSeconds) << label << ", " << name;
      std::string back;
      for (const TokenId id : ids)
        back += tokenizer.token_bytes(id, false);
      if (tokenizer.strips_leading_space()) back.erase(0, 1);
      EXPECT_TRUE(back == text) << label << ", " << name << ": " << back.size() << " of "
                                << text.size() << " bytes";
    });
  }
}

class LongTextTest : public testing::TestWithParam<const char*> {};

TEST_P(LongTextTest, ByteLevelBpe) {
  const auto file = GgufFile::open(test::testdata() / "vocab" / "gpt-2.gguf");
  const auto tokenizer = Tokenizer::create(read_gguf_tokenizer(file->metadata()), GetParam());
  expect_fast(*tokenizer, GetParam());
}

INSTANTIATE_TEST_SUITE_P(All, LongTextTest,
                         testing::Values("qwen2", "qwen35", "llama3", "gpt-2", "smollm", "default"),
                         [](const auto& pre) {
                           std::string name = pre.param;
                           std::erase(name, '-');
                           return name;
                         });

TEST(LongText, SentencePiece) {
  expect_fast(*test::tokenizer_of(test::testdata() / "vocab" / "llama-spm.gguf"), "llama-spm");
}

}  // namespace
}  // namespace ts
