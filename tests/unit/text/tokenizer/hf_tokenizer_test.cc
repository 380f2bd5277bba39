#include "text/hf_tokenizer.h"

#include <bit>
#include <cmath>
#include <fstream>
#include <iterator>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <tensorsharp/error.hpp>

#include "base/log.h"
#include "small_vocabularies.h"
#include "support/temp_dir.h"
#include "text/hf_files.h"
#include "text/sentencepiece_model.h"

namespace ts {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

constexpr const char* kQwen2Regex =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kQwen35Regex =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kLlama3Regex =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

json split_by(const char* regex) {
  return {{"type", "Sequence"},
          {"pretokenizers",
           {{{"type", "Split"},
             {"pattern", {{"Regex", regex}}},
             {"behavior", "Isolated"},
             {"invert", false}},
            {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}}}}};
}

json added(int id, const char* content, bool special) {
  return {{"id", id}, {"content", content}, {"special", special}};
}

/// tokenizer.json of the small byte-level vocabulary.
json bpe_json() {
  const TokenizerData d = test::small_bpe();
  json vocab = json::object();
  for (size_t i = 0; i < 260; ++i)
    vocab[d.tokens[i]] = i;
  return {{"normalizer", {{"type", "NFC"}}},
          {"pre_tokenizer", split_by(kQwen2Regex)},
          {"post_processor", nullptr},
          {"added_tokens",
           {added(260, "<|endoftext|>", true), added(261, "<|im_start|>", true),
            added(262, "<|im_end|>", false), added(263, "<think>", false)}},
          {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", d.merges}}}};
}

/// tokenizer.json of a small SentencePiece-style vocabulary.
json spm_json() {
  json vocab = {{"<unk>", 0}, {"<s>", 1}, {"</s>", 2}};
  for (int byte = 0; byte < 256; ++byte) {
    vocab[byte_token_text(static_cast<uint8_t>(byte))] = 3 + byte;
  }
  int id = 259;
  for (const char* piece : {"a", "b", "c", "\u2581", "ab", "abc", "bc"})
    vocab[piece] = id++;
  return {{"normalizer",
           {{"type", "Sequence"},
            {"normalizers",
             {{{"type", "Prepend"}, {"prepend", "\u2581"}},
              {{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", "\u2581"}}}}}},
          {"pre_tokenizer", nullptr},
          {"added_tokens",
           {added(0, "<unk>", true), added(1, "<s>", true), added(2, "</s>", true),
            added(266, "\u2581\u2581", false)}},
          {"model",
           {{"type", "BPE"},
            {"byte_fallback", true},
            {"unk_token", "<unk>"},
            {"vocab", vocab},
            {"merges", json::parse(R"([["a","b"],["ab","c"],["a","bc"],["b","c"]])")}}}};
}

HfFiles files_of(json tokenizer) {
  HfFiles files;
  files.source = "dir";
  files.tokenizer = std::move(tokenizer);
  return files;
}

std::string error_of(const HfFiles& files, const HfTokenizerOptions& options = {}) {
  try {
    build_hf_tokenizer(files, options);
  } catch (const Error& e) {
    return e.what();
  }
  ADD_FAILURE() << "no error";
  return {};
}

std::string pre_of(const HfFiles& files, const HfTokenizerOptions& options = {}) {
  return build_hf_tokenizer(files, options).pre;
}

TEST(HfTokenizer, ByteLevelBpe) {
  HfFiles files = files_of(bpe_json());
  files.tokenizer_config = {{"eos_token", {{"content", "<|im_end|>"}}},
                            {"pad_token", "<|endoftext|>"},
                            {"bos_token", nullptr}};
  files.config = {{"eos_token_id", 260}, {"bos_token_id", 261}};
  const TokenizerData d = build_hf_tokenizer(files, {.n_vocab = 270});
  EXPECT_EQ(d.model, "gpt2");
  EXPECT_EQ(d.pre, "qwen2");
  EXPECT_EQ(d.eos, 262);  // the text wins over config.json's number
  EXPECT_EQ(d.bos, 261);
  EXPECT_EQ(d.pad, 260);
  ASSERT_EQ(d.tokens.size(), 270u);
  EXPECT_EQ(d.types[262], TokenType::kControl);  // looks special
  EXPECT_EQ(d.types[263], TokenType::kUserDefined);
  EXPECT_EQ(d.types[269], TokenType::kUnused);
  EXPECT_EQ(d.tokens[269], "[PAD269]");
  EXPECT_EQ(d.merges, test::small_bpe().merges);
  EXPECT_EQ(Tokenizer::create(d)->encode("hello", {}), (std::vector<TokenId>{259}));
}

TEST(HfTokenizer, MergesMayBePairs) {
  json j = bpe_json();
  j["model"]["merges"] = json::parse(R"([["h","e"],["l","l"],["he","ll"],["hell","o"]])");
  EXPECT_EQ(build_hf_tokenizer(files_of(j), {}).merges, test::small_bpe().merges);
  j["model"]["merges"] = json::parse(R"([["h","e","l"]])");
  EXPECT_THAT(error_of(files_of(j)), HasSubstr("merge 0"));
  j["model"]["merges"] = json::array({"he"});
  EXPECT_THAT(error_of(files_of(j)), HasSubstr("merge 0"));
  j["model"].erase("type");
  j["model"]["merges"] = json::array({"h e"});
  EXPECT_EQ(build_hf_tokenizer(files_of(j), {}).merges.size(), 1u);
}

TEST(HfTokenizer, PreTokenizerFollowsFromTheStructure) {
  json j = bpe_json();
  EXPECT_EQ(pre_of(files_of(j)), "qwen2");
  j["pre_tokenizer"] = split_by(kQwen35Regex);
  EXPECT_EQ(pre_of(files_of(j)), "qwen35");
  j["pre_tokenizer"] = split_by(kLlama3Regex);
  j["model"]["ignore_merges"] = true;
  EXPECT_EQ(pre_of(files_of(j)), "llama-bpe");
  j["pre_tokenizer"] = {{"type", "ByteLevel"}, {"add_prefix_space", false}};
  EXPECT_EQ(pre_of(files_of(j)), "gpt-2");
  j["pre_tokenizer"] = {{"type", "Sequence"},
                        {"pretokenizers",
                         {{{"type", "Digits"}, {"individual_digits", true}},
                          {{"type", "ByteLevel"}, {"use_regex", true}}}}};
  EXPECT_EQ(pre_of(files_of(j)), "smollm");
  j["pre_tokenizer"] = split_by("[a-z]+");
  EXPECT_THAT(error_of(files_of(j)), AllOf(HasSubstr("[a-z]+"), HasSubstr("--force-pre")));
  EXPECT_EQ(pre_of(files_of(j), {.force_pre = "smollm"}), "smollm");
  EXPECT_THAT(error_of(files_of(j), {.force_pre = "x"}), HasSubstr("'x'"));
}

TEST(HfTokenizer, StepsThatChangeTheTextAreRefused) {
  // No pre-tokenizer name can make up for them, so none is asked for, and forcing one is no help.
  for (const char* type : {"Lowercase", "NFD", "NFKC", "Strip", "Precompiled", ""}) {
    json j = bpe_json();
    j["normalizer"] = {{"type", type}};
    for (const char* force : {"", "qwen2"}) {
      const std::string error = error_of(files_of(j), {.force_pre = force});
      EXPECT_THAT(error, AllOf(HasSubstr("\"normalizer\""), HasSubstr(type)));
      EXPECT_THAT(error, Not(HasSubstr("--force-pre")));
    }
    j = spm_json();
    j["normalizer"]["normalizers"].push_back({{"type", type}});
    EXPECT_THAT(error_of(files_of(j), {.force_pre = "qwen2"}), HasSubstr("\"normalizer\""));
  }
  json j = bpe_json();
  j["normalizer"] = {{"type", "Prepend"}, {"prepend", "\u2581"}};
  EXPECT_THAT(error_of(files_of(j)), HasSubstr("\"normalizer\""));
  j = spm_json();
  j["pre_tokenizer"] = {{"type", "Digits"}, {"individual_digits", true}};
  EXPECT_THAT(error_of(files_of(j), {.force_pre = "qwen2"}), HasSubstr("Digits"));
}

TEST(HfTokenizer, ASpaceInFrontOfByteLevelTextIsRefused) {
  json j = bpe_json();
  j["pre_tokenizer"]["pretokenizers"][1]["add_prefix_space"] = true;
  EXPECT_THAT(error_of(files_of(j), {.force_pre = "qwen2"}), HasSubstr("add_prefix_space"));
  j["pre_tokenizer"] = {{"type", "ByteLevel"}, {"add_prefix_space", true}};
  HfFiles files = files_of(j);
  EXPECT_THAT(error_of(files), AllOf(HasSubstr("tokenizer.json"), HasSubstr("add_prefix_space")));
  // The configuration of the class replaces the setting of a step that stands alone.
  files.tokenizer_config = {{"add_prefix_space", false}};
  EXPECT_EQ(pre_of(files), "gpt-2");
  files.tokenizer["pre_tokenizer"]["add_prefix_space"] = false;
  files.tokenizer_config = {{"add_prefix_space", true}};
  EXPECT_THAT(error_of(files),
              AllOf(HasSubstr("tokenizer_config.json"), HasSubstr("add_prefix_space")));
  files.tokenizer = bpe_json();
  EXPECT_EQ(pre_of(files), "qwen2");
}

TEST(HfTokenizer, TokensThatTakeBlanksWithThemAreRefused) {
  for (const char* field : {"lstrip", "rstrip", "single_word"}) {
    json j = bpe_json();
    j["added_tokens"][3][field] = true;
    EXPECT_THAT(error_of(files_of(j)),
                AllOf(HasSubstr("<think>"), HasSubstr(field), HasSubstr("tokenizer.json")));
    HfFiles files = files_of(bpe_json());
    json token = added(264, "<x>", true);
    token[field] = true;
    files.tokenizer_config = {{"added_tokens_decoder", {{"264", token}}}};
    EXPECT_THAT(error_of(files), AllOf(HasSubstr("<x>"), HasSubstr("tokenizer_config.json")));
    // An entry for a token that tokenizer.json describes does not count.
    files.tokenizer_config = {{"added_tokens_decoder", {{"263", token}}}};
    EXPECT_EQ(build_hf_tokenizer(files, {}).tokens[263], "<think>");
  }
}

TEST(HfTokenizer, AnAddedTokenMustNotTakeTheIdOfAnother) {
  json j = bpe_json();
  j["added_tokens"].push_back(added(104, "<x>", false));
  EXPECT_THAT(error_of(files_of(j)), AllOf(HasSubstr("<x>"), HasSubstr("104"), HasSubstr("'h'"),
                                           HasSubstr("tokenizer.json")));
  j = spm_json();
  j["added_tokens"].push_back(added(260, "<x>", true));
  EXPECT_THAT(error_of(files_of(j)), AllOf(HasSubstr("<x>"), HasSubstr("260")));
  // Places that are kept for such tokens may be taken.
  j = bpe_json();
  j["model"]["vocab"]["<unused7>"] = 264;
  j["model"]["vocab"]["<reserved_8>"] = 265;
  j["added_tokens"].push_back(added(264, "<x>", false));
  j["added_tokens"].push_back(added(265, "<y>", false));
  const TokenizerData d = build_hf_tokenizer(files_of(j), {});
  EXPECT_EQ(d.tokens[264], "<x>");
  EXPECT_EQ(d.tokens[265], "<y>");
}

/// The ids of `text` after conversion.
std::vector<TokenId> ids_of(const json& j, const char* text) {
  return Tokenizer::create(build_hf_tokenizer(files_of(j), {}))
      ->encode(text, {.add_special = false});
}

TEST(HfTokenizer, IgnoreMergesIsKeptOrRefused) {
  json j = bpe_json();
  j["pre_tokenizer"] = split_by(kLlama3Regex);
  // Every token is reached by merges: both settings give the same tokens.
  EXPECT_EQ(pre_of(files_of(j)), "llama-bpe");
  j["model"]["ignore_merges"] = true;
  EXPECT_EQ(pre_of(files_of(j)), "llama-bpe");

  // A token without merges.
  j["model"]["vocab"]["zqx"] = 264;
  EXPECT_EQ(pre_of(files_of(j)), "llama-bpe");
  EXPECT_EQ(ids_of(j, "zqx"), (std::vector<TokenId>{264}));
  j["model"]["ignore_merges"] = false;
  EXPECT_EQ(pre_of(files_of(j)), "smaug-bpe");
  EXPECT_EQ(ids_of(j, "zqx"), (std::vector<TokenId>{'z', 'q', 'x'}));
  j["model"].erase("ignore_merges");
  EXPECT_EQ(ids_of(j, "zqx"), (std::vector<TokenId>{'z', 'q', 'x'}));
  EXPECT_EQ(build_hf_tokenizer(files_of(j), {}).add_bos, false);

  j["pre_tokenizer"] = split_by(kQwen2Regex);
  EXPECT_EQ(ids_of(j, "zqx"), (std::vector<TokenId>{'z', 'q', 'x'}));
  j["model"]["ignore_merges"] = true;
  EXPECT_THAT(error_of(files_of(j)), AllOf(HasSubstr("ignore_merges"), HasSubstr("'zqx'")));
  EXPECT_EQ(pre_of(files_of(j), {.force_pre = "qwen2"}), "qwen2");
}

TEST(HfTokenizer, TokenizersWithoutMergesOrTokensAreRefused) {
  json j = bpe_json();
  j["model"].erase("merges");
  EXPECT_THAT(error_of(files_of(j)), AllOf(HasSubstr("tokenizer.json"), HasSubstr("merges")));
  j["model"]["merges"] = json::array();  // only bytes
  EXPECT_EQ(build_hf_tokenizer(files_of(j), {}).tokens.size(), 264u);
  for (json k : {bpe_json(), spm_json()}) {
    k["model"]["vocab"] = json::object();
    k["model"]["merges"] = json::array();
    EXPECT_THAT(error_of(files_of(k), {.n_vocab = 300}), HasSubstr("vocabulary is empty"));
  }
}

TEST(HfTokenizer, TheUnknownTokenIsTheModels) {
  HfFiles files = files_of(bpe_json());
  files.tokenizer_config = {{"unk_token", "<|endoftext|>"}};
  EXPECT_FALSE(build_hf_tokenizer(files, {}).unk);
  files.tokenizer["model"]["unk_token"] = "<|endoftext|>";
  EXPECT_EQ(build_hf_tokenizer(files, {}).unk, 260);
}

TEST(HfTokenizer, Qwen35IsRecognisedBehindThePatternOfQwen2) {
  HfFiles files = files_of(bpe_json());
  EXPECT_EQ(pre_of(files, {.architecture = "Qwen3_5ForCausalLM"}), "qwen35");
  files.config = {{"architectures", {"Qwen3_5ForConditionalGeneration"}}};
  EXPECT_EQ(pre_of(files), "qwen35");
  files.config = nullptr;
  files.tokenizer_config = {{"pretokenize_regex", kQwen35Regex}};
  EXPECT_EQ(pre_of(files), "qwen35");
  files.tokenizer_config = {{"pretokenize_regex", "something else"}};
  EXPECT_EQ(pre_of(files), "qwen2");
}

TEST(HfTokenizer, SentencePieceScoresComeFromMerges) {
  HfFiles files = files_of(spm_json());
  files.tokenizer_config = {
      {"bos_token", "<s>"}, {"eos_token", "</s>"}, {"unk_token", "<unk>"}, {"add_bos_token", true}};
  const TokenizerData d = build_hf_tokenizer(files, {});
  EXPECT_EQ(d.model, "llama");
  EXPECT_EQ(d.pre, "default");
  ASSERT_EQ(d.tokens.size(), 267u);
  EXPECT_EQ(d.types[0], TokenType::kUnknown);
  EXPECT_EQ(d.types[1], TokenType::kControl);
  EXPECT_EQ(d.types[3], TokenType::kByte);
  EXPECT_EQ(d.scores[263], 0.0f);  // ab
  EXPECT_FALSE(std::signbit(d.scores[263]));
  EXPECT_EQ(d.scores[264], -1.0f);  // abc
  EXPECT_EQ(d.scores[265], -3.0f);  // bc
  EXPECT_EQ(d.scores[259], -1e6f);
  EXPECT_EQ(d.tokens[266], "  ");  // user-defined texts hold spaces
  EXPECT_EQ(d.types[266], TokenType::kUserDefined);
  EXPECT_EQ(d.add_space_prefix, true);
  EXPECT_EQ(Tokenizer::create(d)->encode("abc", {}), (std::vector<TokenId>{1, 262, 264}));
  files.config = {{"architectures", {"Gemma3ForCausalLM"}}};
  EXPECT_EQ(build_hf_tokenizer(files, {}).add_space_prefix, false);
}

TEST(HfTokenizer, TokensWithoutMergesAreToldWhereScoresMayBuildThem) {
  std::vector<std::string> warnings;
  set_log_sink([&](LogLevel level, std::string_view line) {
    if (level == LogLevel::kWarning) warnings.emplace_back(line);
  });
  json j = spm_json();
  (void)build_hf_tokenizer(files_of(j), {});
  EXPECT_THAT(warnings, Not(testing::Contains(HasSubstr("no merge builds"))));
  j["model"]["vocab"]["cab"] = 267;
  (void)build_hf_tokenizer(files_of(j), {});
  EXPECT_THAT(warnings,
              testing::Contains(AllOf(HasSubstr("no merge builds 1 "), HasSubstr("cab"))));
  set_log_sink({});
}

TEST(HfTokenizer, OtherKindsAreRefusedByName) {
  json j = bpe_json();
  for (const char* type : {"Unigram", "WordPiece", "WordLevel"}) {
    j["model"]["type"] = type;
    EXPECT_THAT(error_of(files_of(j)), HasSubstr(type));
  }
  j = bpe_json();
  j["model"]["end_of_word_suffix"] = "</w>";
  EXPECT_THAT(error_of(files_of(j)), HasSubstr("end_of_word_suffix"));
  j = bpe_json();
  j["pre_tokenizer"] = {{"type", "Whitespace"}};
  EXPECT_THAT(error_of(files_of(j)), HasSubstr("Whitespace"));
  EXPECT_THAT(error_of(files_of(nullptr)), HasSubstr("holds no tokenizer"));
  EXPECT_THAT(error_of(files_of(json::object())), HasSubstr("\"model\""));
}

TEST(HfTokenizer, WrongIdsAreRefused) {
  json j = bpe_json();
  j["model"]["vocab"]["zz"] = 5;
  EXPECT_THAT(error_of(files_of(j)), HasSubstr("same id 5"));
  for (const json& id : {json(-1), json(1ull << 40), json(18446744073709551615ull)}) {
    j = bpe_json();
    j["model"]["vocab"]["zz"] = id;
    EXPECT_THAT(error_of(files_of(j)), HasSubstr("out of range"));
  }
  for (const json& id : {json(1.5), json("7"), json(true), json(nullptr)}) {
    j = bpe_json();
    j["model"]["vocab"]["zz"] = id;
    EXPECT_THAT(error_of(files_of(j)), HasSubstr("expected an integer"));
  }
  j = bpe_json();
  j["added_tokens"].push_back(added(300, "hello", false));
  EXPECT_THAT(error_of(files_of(j)), HasSubstr("the vocabulary gives it 259"));
  EXPECT_THAT(error_of(files_of(bpe_json()), {.n_vocab = 262}),
              AllOf(HasSubstr("<think>"), HasSubstr("262 rows")));
  j = bpe_json();
  j["added_tokens"].push_back(added(264, "<image_soft_token>", true));
  EXPECT_EQ(build_hf_tokenizer(files_of(j), {.n_vocab = 264}).tokens.size(), 264u);
}

TEST(HfTokenizer, FlagsComeFromThePostProcessorAndTheConfiguration) {
  HfFiles files = files_of(bpe_json());
  files.tokenizer_config = {{"bos_token", "<|im_start|>"}, {"eos_token", "<|im_end|>"}};
  EXPECT_FALSE(build_hf_tokenizer(files, {}).add_bos);
  const json step = {{"SpecialToken", {{"id", "<|im_start|>"}, {"type_id", 0}}}};
  const json text = {{"Sequence", {{"id", "A"}, {"type_id", 0}}}};
  files.tokenizer["post_processor"] = {
      {"type", "Sequence"},
      {"processors",
       {{{"type", "ByteLevel"}}, {{"type", "TemplateProcessing"}, {"single", {step, text}}}}}};
  TokenizerData d = build_hf_tokenizer(files, {});
  EXPECT_EQ(d.add_bos, true);
  EXPECT_EQ(d.add_eos, false);
  files.tokenizer_config["add_bos_token"] = false;
  EXPECT_EQ(build_hf_tokenizer(files, {}).add_bos, false);
}

TEST(HfTokenizer, ATokenTheTemplateAddsBecomesBosOrEos) {
  HfFiles files = files_of(bpe_json());
  const auto special = [](const char* text) {
    return json{{"SpecialToken", {{"id", text}, {"type_id", 0}}}};
  };
  const json text = {{"Sequence", {{"id", "A"}, {"type_id", 0}}}};
  const auto set = [&](const json& single) {
    files.tokenizer["post_processor"] = {{"type", "TemplateProcessing"}, {"single", single}};
  };
  set({special("<|im_start|>"), text, special("<|im_end|>")});
  const TokenizerData d = build_hf_tokenizer(files, {});
  EXPECT_EQ(d.bos, 261);
  EXPECT_EQ(d.eos, 262);
  EXPECT_EQ(Tokenizer::create(d)->encode("hello", {}), (std::vector<TokenId>{261, 259, 262}));

  files.tokenizer["post_processor"]["special_tokens"] = {
      {"<|im_start|>", {{"id", "<|im_start|>"}, {"ids", {261}}}}};
  EXPECT_EQ(build_hf_tokenizer(files, {}).bos, 261);
  for (const json& ids : {json{260}, json{261, 261}, json::array()}) {
    files.tokenizer["post_processor"]["special_tokens"]["<|im_start|>"]["ids"] = ids;
    EXPECT_THAT(error_of(files), AllOf(HasSubstr("post_processor"), HasSubstr(ids.dump())));
  }
  set({special("<|im_start|>"), text, special("<|im_end|>")});
  files.tokenizer_config = {{"bos_token", "<|endoftext|>"}};
  EXPECT_THAT(error_of(files), AllOf(HasSubstr("post_processor"), HasSubstr("<|im_start|>")));
  files.tokenizer_config = json::object();
  set({special("<|im_start|>"), special("<|im_end|>"), text});
  EXPECT_THAT(error_of(files), HasSubstr("single"));
  set({special("<|im_start|>"), text, text});
  EXPECT_THAT(error_of(files), HasSubstr("single"));
  set({special("<none>"), text});
  EXPECT_THAT(error_of(files), HasSubstr("<none>"));
  files.tokenizer["post_processor"] = {{"type", "RobertaProcessing"}};
  EXPECT_THAT(error_of(files), AllOf(HasSubstr("post_processor"), HasSubstr("RobertaProcessing")));
}

TEST(HfTokenizer, SpecialIdsThatAreNoneAreRefused) {
  for (const char* key : {"bos_token_id", "eos_token_id"}) {
    for (const json& value : {json("a"), json(1.5), json(true), json(999), json(-2),
                              json(18446744073709551615ull), json::array({1, "a"})}) {
      HfFiles files = files_of(bpe_json());
      files.config = {{key, value}};
      EXPECT_THAT(error_of(files), AllOf(HasSubstr("dir/config.json"), HasSubstr(key)));
      files.config = {{"text_config", {{key, value}}}};
      EXPECT_THAT(error_of(files), AllOf(HasSubstr("dir/config.json"), HasSubstr(key)));
    }
  }
  HfFiles files = files_of(bpe_json());
  files.generation_config = {{"eos_token_id", {260, 999}}};
  EXPECT_THAT(error_of(files), AllOf(HasSubstr("generation_config.json"), HasSubstr("999")));
  files = files_of(bpe_json());
  files.config = {{"bos_token_id", -1}, {"eos_token_id", nullptr}, {"pad_token_id", 999}};
  const TokenizerData d = build_hf_tokenizer(files, {});
  EXPECT_FALSE(d.bos);
  EXPECT_FALSE(d.eos);
  EXPECT_FALSE(d.pad);
}

TEST(HfTokenizer, EndTokensOfTheGenerationConfig) {
  HfFiles files = files_of(bpe_json());
  files.tokenizer_config = {{"eos_token", "<|im_end|>"}};
  files.generation_config = {{"eos_token_id", {262, 260, 259, 258}}};
  const TokenizerData d = build_hf_tokenizer(files, {});
  EXPECT_EQ(d.eot, 259);  // 260 is known by its text
  EXPECT_EQ(d.eom, 258);
}

TEST(HfTokenizer, ChatTemplates) {
  HfFiles files = files_of(bpe_json());
  files.chat_template_json = {{"chat_template", "json"}};
  EXPECT_EQ(build_hf_tokenizer(files, {}).chat_template, "json");
  files.tokenizer_config = {{"chat_template",
                             {{{"name", "default"}, {"template", "config\n"}},
                              {{"name", "tool-use"}, {"template", "t"}}}}};
  TokenizerData d = build_hf_tokenizer(files, {});
  EXPECT_EQ(d.chat_template, "config\n");
  ASSERT_EQ(d.extra_templates.size(), 1u);
  EXPECT_EQ(d.extra_templates[0].first, "tool_use");
  files.chat_template_jinja = "jinja";
  EXPECT_EQ(build_hf_tokenizer(files, {}).chat_template, "jinja");
  files.tokenizer_config = {{"chat_template", 3}};
  EXPECT_THAT(error_of(files), HasSubstr("chat_template"));
}

class HfDirectoryTest : public testing::Test {
 protected:
  void write(const char* name, const std::string& text) {
    std::ofstream(dir_ / name, std::ios::binary) << text;
  }
  std::string error() {
    try {
      read_hf_tokenizer(dir_.path(), {});
    } catch (const Error& e) {
      return e.what();
    }
    ADD_FAILURE() << "no error";
    return {};
  }
  test::TempDir dir_;
};

TEST_F(HfDirectoryTest, ReadsFiles) {
  EXPECT_THAT(error(), HasSubstr("holds no tokenizer"));
  write("tokenizer.json", bpe_json().dump());
  write("chat_template.jinja", "{{ messages }}\n");
  std::filesystem::create_directory(dir_ / "additional_chat_templates");
  write("additional_chat_templates/rag.jinja", "r");
  const TokenizerData d = read_hf_tokenizer(dir_.path(), {});
  EXPECT_EQ(d.chat_template, "{{ messages }}\n");
  ASSERT_EQ(d.extra_templates.size(), 1u);
  EXPECT_EQ(d.extra_templates[0].first, "rag");
  write("tokenizer.json", "version https://git-lfs\noid sha256:0\n");
  EXPECT_THAT(error(), HasSubstr("LFS"));
  write("tokenizer.json", "[1]");
  EXPECT_THAT(error(), HasSubstr("expected an object"));
  write("tokenizer.json", "{\"a\":");
  EXPECT_THAT(error(), HasSubstr("tokenizer.json"));
  write("tokenizer.json", std::string(100000, '['));
  EXPECT_THAT(error(), HasSubstr("tokenizer.json"));
  EXPECT_THROW(read_hf_tokenizer(dir_ / "missing", {}), IoError);
}

TEST_F(HfDirectoryTest, ReadsVocabAndMerges) {
  const TokenizerData small = test::small_bpe();
  json vocab = json::object();
  for (size_t i = 0; i < 260; ++i)
    vocab[small.tokens[i]] = i;
  write("vocab.json", vocab.dump());
  write("merges.txt", "#version: 0.2\nh e\nl l\r\nhe ll\nhell o\n");
  write("added_tokens.json", R"({"<|endoftext|>": 260})");
  EXPECT_THAT(error(), HasSubstr("vocab.json"));  // nothing says which pre-tokenizer
  write("tokenizer_config.json", R"({"tokenizer_class": "GPT2Tokenizer"})");
  const TokenizerData d = read_hf_tokenizer(dir_.path(), {});
  EXPECT_EQ(d.pre, "gpt-2");
  EXPECT_EQ(d.merges, small.merges);
  EXPECT_EQ(d.types[260], TokenType::kControl);
}

// SentencePiece models.

std::string varint(uint64_t v) {
  std::string out;
  for (; v >= 0x80; v >>= 7)
    out += static_cast<char>(0x80 | (v & 0x7F));
  return out + static_cast<char>(v);
}
std::string bytes_field(uint64_t number, const std::string& value) {
  return varint(number << 3 | 2) + varint(value.size()) + value;
}
std::string piece(const std::string& text, float score, int type) {
  std::string number(4, '\0');
  const auto bits = std::bit_cast<uint32_t>(score);
  for (size_t i = 0; i < 4; ++i)
    number[i] = static_cast<char>(bits >> (8 * i));
  return bytes_field(1, bytes_field(1, text) + varint(2 << 3 | 5) + number + varint(3 << 3) +
                            varint(static_cast<uint64_t>(type)));
}
std::string spm_bytes() {
  const TokenizerData d = test::small_spm();
  std::string out;
  for (size_t i = 0; i < d.tokens.size(); ++i) {
    out += piece(d.tokens[i], d.scores[i], static_cast<int>(d.types[i]));
  }
  out += bytes_field(2, varint(3 << 3) + varint(2) + varint(35 << 3) + varint(1) + varint(43 << 3) +
                            varint(~uint64_t{0}));
  return out + bytes_field(3, bytes_field(1, "identity") + varint(3 << 3) + varint(0));
}

TEST_F(HfDirectoryTest, ReadsSentencePieceModels) {
  write("tokenizer.model", spm_bytes());
  TokenizerData d = read_hf_tokenizer(dir_.path(), {.n_vocab = 280});
  EXPECT_EQ(d.model, "llama");
  const TokenizerData small = test::small_spm();
  ASSERT_EQ(d.tokens.size(), 280u);
  for (size_t i = 0; i < small.tokens.size(); ++i) {
    EXPECT_EQ(d.scores[i], small.scores[i]);
    EXPECT_EQ(d.types[i], small.types[i]);
  }
  EXPECT_EQ(d.tokens[272], "  ");
  EXPECT_EQ(d.scores[279], -10000.0f);
  EXPECT_EQ(d.unk, 0);
  EXPECT_EQ(d.bos, 1);
  EXPECT_FALSE(d.pad);
  EXPECT_EQ(d.add_space_prefix, false);
  // Together with tokenizer.json the scores are those of the model; added tokens lie over it.
  json with_model = spm_json();
  with_model["added_tokens"].erase(3);
  write("tokenizer.json", with_model.dump());
  write("tokenizer_config.json",
        R"({"added_tokens_decoder": {"275": {"content": "<extra>", "special": true}}})");
  d = read_hf_tokenizer(dir_.path(), {});
  EXPECT_EQ(d.scores[264], small.scores[264]);
  EXPECT_EQ(d.tokens[275], "<extra>");
  EXPECT_EQ(d.types[275], TokenType::kControl);
  EXPECT_EQ(d.scores[275], -1000.0f);
  EXPECT_EQ(d.tokens[274], "[PAD274]");
}

TEST(SentencePieceModel, ReadsAPublishedModel) {
  std::ifstream in(std::string(TS_TESTDATA_DIR) + "/tokenizer/sentencepiece_unigram.model",
                   std::ios::binary);
  const std::string bytes(std::istreambuf_iterator<char>(in), {});
  const SentencePieceModel m = read_sentencepiece_model(bytes, "m");
  ASSERT_EQ(m.pieces.size(), 1000u);
  EXPECT_EQ(m.algorithm, SentencePieceModel::kUnigram);
  EXPECT_EQ(m.pieces[0].text, "<unk>");
  EXPECT_EQ(m.pieces[0].type, TokenType::kUnknown);
  EXPECT_EQ(m.pieces[1].type, TokenType::kControl);
  EXPECT_EQ(m.pieces[3].type, TokenType::kNormal);
  EXPECT_TRUE(m.add_dummy_prefix);
  EXPECT_EQ(m.unk, 0);
  EXPECT_FALSE(m.pad);
  HfFiles files;
  files.source = "dir";
  files.sentencepiece_model = bytes;
  EXPECT_THAT(error_of(files), HasSubstr("unigram"));
}

TEST(SentencePieceModel, EveryTruncationIsNoticedOrShorter) {
  const std::string bytes = spm_bytes();
  size_t refused = 0;
  for (size_t n = 0; n < bytes.size(); ++n) {
    try {
      const auto m = read_sentencepiece_model(std::string_view(bytes).substr(0, n), "m");
      EXPECT_LE(m.pieces.size(), 273u);
    } catch (const FormatError& e) {
      EXPECT_THAT(e.what(), HasSubstr("m: "));
      ++refused;
    }
  }
  EXPECT_GT(refused, bytes.size() / 2);
  EXPECT_THROW(read_sentencepiece_model(std::string(11, '\xFF'), "m"), FormatError);
  EXPECT_THROW(read_sentencepiece_model(piece("a", 0, 9), "m"), FormatError);
}

}  // namespace
}  // namespace ts
