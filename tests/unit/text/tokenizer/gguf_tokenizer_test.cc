#include "model/gguf_tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <tensorsharp/error.hpp>

#include "base/log.h"
#include "small_vocabularies.h"

namespace ts {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::vector<int64_t> type_numbers(const TokenizerData& d) {
  std::vector<int64_t> out;
  for (const TokenType t : d.types)
    out.push_back(static_cast<int64_t>(t));
  return out;
}

Metadata bpe_metadata() {
  const TokenizerData d = test::small_bpe();
  Metadata m("file.gguf");
  m.set("tokenizer.ggml.model", MetadataValue::string("gpt2"));
  m.set("tokenizer.ggml.pre", MetadataValue::string("qwen2"));
  m.set("tokenizer.ggml.tokens", MetadataValue::strings(d.tokens));
  m.set("tokenizer.ggml.token_type", MetadataValue::i32_array(type_numbers(d)));
  m.set("tokenizer.ggml.merges", MetadataValue::strings(d.merges));
  return m;
}

std::string error_of(const Metadata& m) {
  try {
    read_gguf_tokenizer(m);
  } catch (const Error& e) {
    return e.what();
  }
  ADD_FAILURE() << "no error";
  return {};
}

TEST(GgufTokenizer, ReadsEveryKey) {
  Metadata m = bpe_metadata();
  m.set("tokenizer.ggml.bos_token_id", MetadataValue::u32(261));
  m.set("tokenizer.ggml.eos_token_id", MetadataValue::u32(262));
  m.set("tokenizer.ggml.padding_token_id", MetadataValue::u32(99999));
  m.set("tokenizer.ggml.unknown_token_id", MetadataValue::i32(-1));
  m.set("tokenizer.ggml.seperator_token_id", MetadataValue::u32(7));
  m.set("tokenizer.ggml.fim_rep_token_id", MetadataValue::u32(9));
  m.set("tokenizer.ggml.add_bos_token", MetadataValue::boolean(true));
  m.set("tokenizer.chat_template", MetadataValue::string("main"));
  m.set("tokenizer.chat_template.tool_use", MetadataValue::string("tools"));
  m.set("tokenizer.chat_templates", MetadataValue::strings({"tool_use"}));
  const TokenizerData d = read_gguf_tokenizer(m);
  EXPECT_EQ(d.model, "gpt2");
  EXPECT_EQ(d.pre, "qwen2");
  EXPECT_EQ(d.tokens, test::small_bpe().tokens);
  EXPECT_EQ(d.types, test::small_bpe().types);
  EXPECT_EQ(d.bos, 261);
  EXPECT_EQ(d.eos, 262);
  EXPECT_FALSE(d.pad);
  EXPECT_FALSE(d.unk);
  EXPECT_EQ(d.sep, 7);
  EXPECT_EQ(d.fim_stop, (std::vector<TokenId>{9}));
  EXPECT_EQ(d.add_bos, true);
  EXPECT_FALSE(d.add_eos);
  EXPECT_EQ(d.chat_template, "main");
  ASSERT_EQ(d.extra_templates.size(), 1u);
  EXPECT_EQ(d.extra_templates[0], (std::pair<std::string, std::string>("tool_use", "tools")));
  EXPECT_EQ(Tokenizer::create(d)->encode("hello", {}), (std::vector<TokenId>{261, 259}));
}

TEST(GgufTokenizer, IdsOfNoTokenAreReported) {
  for (const char* name : {"bos", "eos", "eot", "eom", "unknown", "seperator", "padding", "mask",
                           "fim_pad", "fim_rep", "fim_sep", "prefix"}) {
    const std::string key = std::string("tokenizer.ggml.") + name + "_token_id";
    for (const MetadataValue& value :
         {MetadataValue::u32(264), MetadataValue::u64(99999), MetadataValue::i32(-2)}) {
      Metadata m = bpe_metadata();
      m.set(key, value);
      EXPECT_THAT(find_bad_token_ids(m),
                  testing::ElementsAre(AllOf(HasSubstr(key), HasSubstr("from 0 to 263"))));
      std::vector<std::string> warnings;
      set_log_sink([&](LogLevel level, std::string_view line) {
        if (level == LogLevel::kWarning) warnings.emplace_back(line);
      });
      (void)read_gguf_tokenizer(m);
      set_log_sink({});
      EXPECT_THAT(warnings, testing::ElementsAre(AllOf(HasSubstr("file.gguf"), HasSubstr(key))));
    }
    // "None", as some tools write it, and the last token.
    for (const MetadataValue& value : {MetadataValue::i32(-1), MetadataValue::u32(0xFFFFFFFF),
                                       MetadataValue::u64(UINT64_MAX), MetadataValue::u32(263)}) {
      Metadata m = bpe_metadata();
      m.set(key, value);
      EXPECT_THAT(find_bad_token_ids(m), testing::IsEmpty());
    }
  }
}

TEST(GgufTokenizer, DamageIsNamed) {
  EXPECT_THAT(error_of(Metadata("file.gguf")),
              AllOf(HasSubstr("file.gguf"), HasSubstr("tokenizer.ggml.model")));
  Metadata m = bpe_metadata();
  m.set("tokenizer.ggml.model", MetadataValue::string("t5"));
  EXPECT_THAT(error_of(m), HasSubstr("t5"));
  m = bpe_metadata();
  m.erase("tokenizer.ggml.tokens");
  EXPECT_THAT(error_of(m), HasSubstr("tokenizer.ggml.tokens is missing"));
  m = bpe_metadata();
  m.erase("tokenizer.ggml.merges");
  EXPECT_THAT(error_of(m), HasSubstr("tokenizer.ggml.merges is missing"));
  m = bpe_metadata();
  m.set("tokenizer.ggml.tokens", MetadataValue::i32_array({1, 2}));
  EXPECT_THAT(error_of(m), HasSubstr("tokenizer.ggml.tokens"));
  m = bpe_metadata();
  m.set("tokenizer.ggml.token_type", MetadataValue::i32_array({1, 2}));
  EXPECT_THAT(error_of(m), AllOf(HasSubstr("2 entries"), HasSubstr("264 tokens")));
  m = bpe_metadata();
  m.set("tokenizer.ggml.eos_token_id", MetadataValue::string("2"));
  EXPECT_THAT(error_of(m), HasSubstr("tokenizer.ggml.eos_token_id"));
  m = bpe_metadata();
  m.set("tokenizer.ggml.model", MetadataValue::string("llama"));
  EXPECT_THAT(error_of(m), HasSubstr("tokenizer.ggml.scores"));
  m.set("tokenizer.ggml.scores", MetadataValue::f32_array({1.0f}));
  EXPECT_THAT(error_of(m), HasSubstr("1 entries"));
}

TEST(GgufTokenizer, ReadsSentencePiece) {
  const TokenizerData d = test::small_spm();
  Metadata m("file.gguf");
  m.set("tokenizer.ggml.model", MetadataValue::string("llama"));
  m.set("tokenizer.ggml.tokens", MetadataValue::strings(d.tokens));
  m.set("tokenizer.ggml.token_type", MetadataValue::i32_array(type_numbers(d)));
  m.set("tokenizer.ggml.scores", MetadataValue::f32_array(d.scores));
  m.set("tokenizer.ggml.add_space_prefix", MetadataValue::boolean(false));
  const auto t = Tokenizer::create(read_gguf_tokenizer(m));
  EXPECT_EQ(t->encode("ab", {}), (std::vector<TokenId>{1, 266}));
  EXPECT_TRUE(t->is_end(2));
}

}  // namespace
}  // namespace ts
