// Engines and sessions on a tiny random model: generation, limits, errors, interruption.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <tensorsharp/engine.hpp>

#include "base/sha256.h"
#include "support/temp_dir.h"
#include "support/tiny_model.h"
#include "text/tokenizer.h"

namespace ts {
namespace {

using test::TinyModel;

class SessionTest : public testing::Test {
 protected:
  std::shared_ptr<const Engine> load(const TinyModel& model = {}, LoadOptions options = {}) {
    // A file that an engine has mapped is not replaced.
    const auto folder = directory_.path() / std::to_string(++n_models_);
    std::filesystem::create_directory(folder);
    path_ = (folder / "m.gguf").string();
    test::write_tiny_model(model, path_);
    if (options.n_threads == 0) options.n_threads = 1;
    return Engine::load(path_, options);
  }
  static GenerateOptions greedy(int64_t max_tokens) {
    GenerateOptions o;
    o.sampling.temperature = 0;
    o.max_tokens = max_tokens;
    o.ignore_end = true;
    return o;
  }
  static std::vector<int32_t> prompt(int32_t count) {
    std::vector<int32_t> ids = {1};
    while (static_cast<int32_t>(ids.size()) < count)
      ids.push_back(3 + static_cast<int32_t>(ids.size() * 37 % 250));
    return ids;
  }
  template <typename F>
  static std::string message(F&& f) {
    try {
      f();
    } catch (const Error& error) {
      return std::string(error.kind().name) + ": " + error.what();
    }
    return "no error";
  }
  test::TempDir directory_;
  int n_models_ = 0;
  std::string path_;
};

TEST_F(SessionTest, InfoDescribesTheModel) {
  const auto engine = load();
  const ModelInfo& info = engine->info();
  EXPECT_EQ(info.name, "tiny llama");
  EXPECT_EQ(info.architecture, "llama");
  EXPECT_EQ(info.scheme, "f32");
  EXPECT_EQ(info.n_vocab, 300);
  EXPECT_EQ(info.n_layers, 2);
  EXPECT_EQ(info.context, 512);
  EXPECT_EQ(info.n_threads, 1);
  EXPECT_FALSE(info.threads_reason.empty());
  EXPECT_EQ(info.kv_bytes_per_session, 512u * 2 * 2 * 128 * 2);
  EXPECT_GT(info.weight_bytes, info.weight_bytes_per_token);
  EXPECT_FALSE(info.has_chat_template);
  const std::vector<ChatMessage> chat = {{"user", "hi"}};
  EXPECT_NE(message([&] { engine->tokenize_chat(chat); }).find("chat template"), std::string::npos);
}

TEST_F(SessionTest, PlaceholderNameGivesTheFileStem) {
  TinyModel m;
  m.edit_metadata = [](Metadata& md) { md.set("general.name", MetadataValue::string("Hf")); };
  EXPECT_EQ(load(m)->info().name, "m");
}

TEST_F(SessionTest, RecommendedSampling) {
  TinyModel m;
  m.edit_metadata = [](Metadata& md) {
    md.set("general.sampling.temp", MetadataValue::f32(0.25F));
    md.set("general.sampling.top_k", MetadataValue::i32(20));
    md.set("general.sampling.top_p", MetadataValue::f32(7.0F));       // out of range: ignored
    md.set("general.sampling.min_p", MetadataValue::string("much"));  // no number: ignored
  };
  const SamplingOptions s = load(m)->recommended_sampling();
  EXPECT_EQ(s.temperature, 0.25F);
  EXPECT_EQ(s.top_k, 20);
  EXPECT_EQ(s.top_p, SamplingOptions{}.top_p);
  EXPECT_EQ(s.min_p, SamplingOptions{}.min_p);
}

TEST_F(SessionTest, OneBeginOfSequenceToken) {
  TinyModel m;
  m.edit_metadata = [](Metadata& md) {
    md.set("tokenizer.ggml.add_bos_token", MetadataValue::boolean(true));
    md.set(
        "tokenizer.chat_template",
        MetadataValue::string("{{ bos_token }}{% for m in messages %}{{ m.content }}{% endfor %}"));
  };
  const auto engine = load(m);
  const auto count = [](const std::vector<int32_t>& ids) {
    return std::count(ids.begin(), ids.end(), 1);
  };
  EXPECT_EQ(count(engine->tokenize("ab")), 1);
  EXPECT_EQ(count(engine->tokenize("<s>ab", true, true)), 1);
  const std::vector<ChatMessage> chat = {{"user", "a<s>b"}};
  const auto ids = engine->tokenize_chat(chat);
  EXPECT_EQ(count(ids), 1);  // the template's; the user's text stays text
  EXPECT_EQ(ids[0], 1);
  EXPECT_NE(engine->detokenize(ids, false).find("a<s>b"), std::string::npos);
  EXPECT_NE(message([&] { engine->tokenize_chat(chat, true, "[1]"); }).find("invalid_argument"),
            std::string::npos);

  m.edit_metadata = [](Metadata& md) {
    md.set("tokenizer.ggml.add_bos_token", MetadataValue::boolean(true));
    md.set("tokenizer.chat_template",
           MetadataValue::string("{% for m in messages %}{{ m.content }}{% endfor %}"));
  };
  EXPECT_EQ(count(load(m)->tokenize_chat(chat)), 1);  // the tokenizer's
}

TEST_F(SessionTest, ErrorsOfChatTemplatesNameTheFile) {
  const std::vector<ChatMessage> chat = {{"user", "hi"}};
  const auto failure = [&](const std::string& source) {
    TinyModel m;
    m.edit_metadata = [&](Metadata& md) {
      md.set("tokenizer.chat_template", MetadataValue::string(source));
    };
    const auto engine = load(m);
    return message([&] { engine->tokenize_chat(chat); });
  };
  // A template that never ends, needs too much memory or too deep a stack is a faulty file.
  for (const char* source :
       {"{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}",
        "{% set ns = namespace(s='aaaaaaaaaaaaaaaa') %}{% for i in range(60) %}"
        "{% set ns.s = ns.s + ns.s %}{% endfor %}{{ ns.s }}",
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "{% if %}", "{{ messages.x.y }}"}) {
    const std::string what = failure(source);
    EXPECT_NE(what.find("format_error"), std::string::npos) << what;
    EXPECT_NE(what.find(".gguf"), std::string::npos) << what;
  }
  const std::string refused = failure("{{ raise_exception('no') }}");
  EXPECT_NE(refused.find("invalid_argument"), std::string::npos) << refused;
  EXPECT_NE(refused.find(".gguf"), std::string::npos) << refused;
}

TEST_F(SessionTest, MessagesThatAreNotUtf8AreRendered) {
  TinyModel m;
  m.edit_metadata = [](Metadata& md) {
    md.set("tokenizer.chat_template", MetadataValue::string("{{ messages[0].content }}"));
  };
  const auto engine = load(m);
  const auto ids_of = [&](const std::string& text) {
    const std::vector<ChatMessage> chat = {{"user", text}};
    return engine->tokenize_chat(chat);
  };
  EXPECT_EQ(ids_of("a\xFF"
                   "b\xE4\xBD"),
            ids_of("a\xEF\xBF\xBD"
                   "b\xEF\xBF\xBD"));
}

TEST_F(SessionTest, GeneratesUpToTheLimit) {
  const auto session = load()->new_session();
  const auto result = session->generate(prompt(5), greedy(7));
  EXPECT_EQ(result.stop_reason, StopReason::kLength);
  EXPECT_EQ(result.token_ids.size(), 7u);
  EXPECT_EQ(result.generated_tokens, 7);
  EXPECT_EQ(result.prompt_tokens, 5);
  EXPECT_EQ(result.cached_tokens, 0);
  EXPECT_EQ(session->position(), 5 + 7);  // the last token is held, computed when needed
  EXPECT_GE(result.first_token_seconds, result.prompt_seconds);
  const auto none = session->generate(prompt(5), greedy(0));
  EXPECT_EQ(none.stop_reason, StopReason::kLength);
  EXPECT_TRUE(none.token_ids.empty());
}

TEST_F(SessionTest, CallbackTextsAddUpToTheResult) {
  const auto session = load()->new_session();
  std::string text;
  std::vector<int32_t> ids;
  const auto result = session->generate(prompt(5), greedy(40), [&](const GeneratedToken& t) {
    text += t.text;
    if (t.id >= 0) ids.push_back(t.id);
    return true;
  });
  EXPECT_EQ(text, result.text);
  EXPECT_EQ(ids, result.token_ids);
}

TEST_F(SessionTest, StopStringEndsTheText) {
  const auto engine = load();
  const auto whole = engine->new_session()->generate(prompt(5), greedy(40));
  ASSERT_GT(whole.text.size(), 12u);
  // Any later part of the text that does not occur before, cut at character borders.
  size_t at = whole.text.size() / 2;
  while (at < whole.text.size() && (static_cast<unsigned char>(whole.text[at]) & 0xC0u) == 0x80u)
    ++at;
  auto options = greedy(40);
  options.stop = {"never to be seen", whole.text.substr(at)};
  const auto cut = engine->new_session()->generate(prompt(5), options);
  EXPECT_EQ(cut.stop_reason, StopReason::kStopString);
  EXPECT_EQ(cut.text, whole.text.substr(0, whole.text.find(options.stop[1])));
  options.stop = {""};
  EXPECT_THROW(engine->new_session()->generate(prompt(5), options), InvalidArgument);
}

TEST_F(SessionTest, EndTokenStopsUnlessIgnored) {
  const auto probe = load()->new_session()->generate(prompt(5), greedy(20));
  // The token that comes third is made the end token.
  const int32_t end = probe.token_ids[2];
  const auto first = std::find(probe.token_ids.begin(), probe.token_ids.end(), end);
  TinyModel m;
  m.edit_metadata = [&](Metadata& md) {
    md.set("tokenizer.ggml.eos_token_id", MetadataValue::u32(static_cast<uint32_t>(end)));
  };
  const auto engine = load(m);
  auto options = greedy(20);
  options.ignore_end = false;
  const auto result = engine->new_session()->generate(prompt(5), options);
  EXPECT_EQ(result.stop_reason, StopReason::kEndOfText);
  EXPECT_EQ(result.token_ids, std::vector<int32_t>(probe.token_ids.begin(), first));
  options.ignore_end = true;
  EXPECT_EQ(engine->new_session()->generate(prompt(5), options).token_ids, probe.token_ids);
}

TEST_F(SessionTest, FillsTheContextToTheBrim) {
  LoadOptions options;
  options.context = 70;
  const auto session = load({}, options)->new_session();
  const auto result = session->generate(prompt(60), greedy(-1));
  EXPECT_EQ(result.stop_reason, StopReason::kContextFull);
  EXPECT_EQ(result.generated_tokens, 10);
  const auto exact = session->generate(prompt(60), greedy(10));
  EXPECT_EQ(exact.stop_reason, StopReason::kLength);
  const auto full = session->generate(prompt(70), greedy(-1));
  EXPECT_EQ(full.stop_reason, StopReason::kContextFull);
  EXPECT_EQ(full.generated_tokens, 0);
  const std::string text = message([&] { session->generate(prompt(71), greedy(-1)); });
  EXPECT_NE(text.find("resource_exhausted"), std::string::npos) << text;
  EXPECT_NE(text.find("71"), std::string::npos) << text;
  EXPECT_NE(text.find("70"), std::string::npos) << text;
}

TEST_F(SessionTest, BadArguments) {
  const auto engine = load();
  const auto session = engine->new_session();
  EXPECT_THROW(session->generate({}, greedy(1)), InvalidArgument);
  const std::vector<int32_t> bad = {1, 300};
  EXPECT_NE(message([&] { session->generate(bad, greedy(1)); }).find("300"), std::string::npos);
  const std::vector<int32_t> negative = {-1};
  EXPECT_THROW(session->eval(negative, {}), InvalidArgument);
  EXPECT_THROW(engine->detokenize(bad), InvalidArgument);
  std::vector<float> logits(299);
  EXPECT_THROW(session->eval(prompt(2), logits), InvalidArgument);
  EXPECT_THROW(session->truncate(1), InvalidArgument);
  EXPECT_EQ(session->position(), 0);
  EXPECT_THROW(session->eval(prompt(513), {}), ResourceExhausted);
  auto options = greedy(1);
  options.n_logprobs = -1;
  EXPECT_THROW(session->generate(prompt(2), options), InvalidArgument);
  options = greedy(1);
  options.sampling.top_p = 2;
  EXPECT_THROW(session->generate(prompt(2), options), InvalidArgument);
}

TEST_F(SessionTest, ReusesTheCommonBeginning) {
  const auto engine = load();
  const auto session = engine->new_session();
  session->generate(prompt(100), greedy(5));
  auto longer = prompt(120);
  const auto reused = session->generate(longer, greedy(8));
  EXPECT_EQ(reused.cached_tokens, 100);
  const auto cold = engine->new_session()->generate(longer, greedy(8));
  EXPECT_EQ(reused.token_ids, cold.token_ids);
  longer[50] = 299;
  const auto changed = session->generate(longer, greedy(8));
  EXPECT_EQ(changed.cached_tokens, 50);
  EXPECT_EQ(changed.token_ids, engine->new_session()->generate(longer, greedy(8)).token_ids);
  EXPECT_EQ(session->generate(longer, greedy(8)).cached_tokens, 119);  // the last one is computed
}

TEST_F(SessionTest, CancelInPromptAndBetweenTokens) {
  LoadOptions load_options;
  load_options.prefill_chunk = 64;
  const auto engine = load({}, load_options);
  const auto session = engine->new_session();
  std::atomic<bool> cancel{false};
  auto options = greedy(-1);
  options.cancel = &cancel;
  options.prompt_progress = [&](uint64_t done, uint64_t total) {
    EXPECT_EQ(total, 300u);
    if (done >= 128) cancel = true;
  };
  const auto in_prompt = session->generate(prompt(300), options);
  EXPECT_EQ(in_prompt.stop_reason, StopReason::kCancelled);
  EXPECT_TRUE(in_prompt.token_ids.empty());
  EXPECT_EQ(session->position(), 128);

  cancel = false;
  options.prompt_progress = {};
  const auto between = session->generate(prompt(300), options, [&](const GeneratedToken&) {
    cancel = true;
    return true;
  });
  EXPECT_EQ(between.cached_tokens, 128);
  EXPECT_EQ(between.stop_reason, StopReason::kCancelled);
  EXPECT_EQ(between.generated_tokens, 1);

  cancel = false;
  const auto refused =
      session->generate(prompt(300), options, [](const GeneratedToken&) { return false; });
  EXPECT_EQ(refused.stop_reason, StopReason::kCancelled);
  EXPECT_EQ(refused.generated_tokens, 1);
  // What was interrupted goes on as if nothing had happened.
  EXPECT_EQ(session->generate(prompt(300), greedy(5)).token_ids,
            engine->new_session()->generate(prompt(300), greedy(5)).token_ids);
}

TEST_F(SessionTest, LoadingCanBeCancelled) {
  std::atomic<bool> cancel{true};
  LoadOptions options;
  options.cancel = &cancel;
  EXPECT_THROW(load({}, options), Cancelled);
}

TEST_F(SessionTest, Logprobs) {
  const auto engine = load();
  auto options = greedy(6);
  options.n_logprobs = 3;
  const auto result = engine->new_session()->generate(prompt(5), options);
  ASSERT_EQ(result.tokens.size(), 6u);
  for (size_t i = 0; i < 6; ++i) {
    const GeneratedToken& t = result.tokens[i];
    EXPECT_EQ(t.id, result.token_ids[i]);
    ASSERT_EQ(t.top.size(), 3u);
    EXPECT_EQ(t.top[0].id, t.id);  // greedy
    EXPECT_EQ(t.top[0].logprob, t.logprob);
    EXPECT_LT(t.logprob, 0);
    EXPECT_GE(t.top[0].logprob, t.top[1].logprob);
  }
  std::vector<float> logits(300);
  engine->new_session()->eval(prompt(5), logits);
  double sum = 0;
  for (const float v : logits)
    sum += std::exp(static_cast<double>(v));
  const auto id = static_cast<size_t>(result.token_ids[0]);
  EXPECT_NEAR(result.tokens[0].logprob, static_cast<double>(logits[id]) - std::log(sum), 1e-4);
}

TEST_F(SessionTest, SavedSessionsContinueTheSame) {
  const auto engine = load();
  const auto session = engine->new_session();
  session->eval(prompt(90), {});
  const std::string file = (directory_.path() / "s.session").string();
  session->save(file);
  const auto other = engine->new_session();
  other->eval(prompt(3), {});
  other->load(file);
  EXPECT_EQ(other->position(), 90);
  const auto copy = session->fork();
  const auto expected = session->generate(prompt(100), greedy(10));
  for (const auto& s : {other.get(), copy.get()}) {
    const auto result = s->generate(prompt(100), greedy(10));
    EXPECT_EQ(result.cached_tokens, 90);
    EXPECT_EQ(result.token_ids, expected.token_ids);
  }
  EXPECT_THROW(session->save(file, false), InvalidArgument);
}

// The scales of an 8-bit cache are not looked at when a session is loaded.
TEST_F(SessionTest, ASavedSessionIsBlamedForItsOwnNumbers) {
  LoadOptions options;
  options.kv = KvCacheType::kQ8;
  options.exact = true;
  const auto engine = load({}, options);
  const auto session = engine->new_session();
  session->eval(prompt(9), {});
  const std::string file = (directory_.path() / "s.session").string();
  session->save(file);
  std::ifstream in(file, std::ios::binary);
  std::string bytes{std::istreambuf_iterator<char>(in), {}};
  const size_t begin = 8 + 64 + 8 + 9 * 4 + 8 + 8, end = bytes.size() - 64 - 8;
  std::fill(bytes.begin() + static_cast<long>(begin), bytes.begin() + static_cast<long>(end),
            '\xFF');
  bytes.resize(bytes.size() - 64);
  bytes += sha256_hex(std::as_bytes(std::span(bytes)));
  std::ofstream(file, std::ios::binary | std::ios::trunc) << bytes;
  const auto loaded = engine->new_session();
  loaded->load(file);
  for (const auto& s : {loaded->fork(), engine->new_session()}) {
    if (s->position() == 0) s->load(file);
    const std::string text = message([&] { s->generate(prompt(12), greedy(2)); });
    EXPECT_TRUE(text.starts_with("format_error: " + file)) << text;
    EXPECT_NE(text.find("saved session is damaged"), std::string::npos) << text;
    EXPECT_EQ(text.find(path_), std::string::npos) << text;
    s->reset();
    EXPECT_EQ(message([&] { s->generate(prompt(12), greedy(2)); }), "no error");
  }
}

TEST_F(SessionTest, FilesThatAreNoSessionsGetAdviceAboutSessions) {
  const auto session = load()->new_session();
  const std::string empty = (directory_.path() / "empty.session").string();
  { std::ofstream file(empty); }
  for (const std::string& path : {empty, directory_.path().string(), std::string("/dev/null")}) {
    const std::string text = message([&] { session->load(path); });
    EXPECT_NE(text.find(path + ": "), std::string::npos) << text;
    EXPECT_NE(text.find("session"), std::string::npos) << text;
    EXPECT_EQ(text.find("model"), std::string::npos) << text;
    EXPECT_EQ(text.find("download"), std::string::npos) << text;
  }
}

TEST_F(SessionTest, EvalStopsWhenAsked) {
  const auto engine = load();
  const auto session = engine->new_session();
  session->eval(prompt(7), {});
  std::atomic<bool> cancel{true};
  EXPECT_THROW(session->eval(prompt(40), {}, false, &cancel), Cancelled);
  EXPECT_EQ(session->position(), 7);
  cancel = false;
  session->eval(prompt(40), {}, false, &cancel);
  EXPECT_EQ(session->position(), 47);
}

TEST_F(SessionTest, DamagedSessionFilesAreRefused) {
  const auto engine = load();
  const auto session = engine->new_session();
  session->eval(prompt(5), {});
  const std::string file = (directory_.path() / "s.session").string();
  session->save(file);
  std::string bytes;
  {
    std::ifstream in(file, std::ios::binary);
    bytes.assign(std::istreambuf_iterator<char>(in), {});
  }
  const auto attempt = [&](const std::string& content) {
    std::ofstream(file, std::ios::binary | std::ios::trunc) << content;
    const auto fresh = engine->new_session();
    const std::string text = message([&] { fresh->load(file); });
    EXPECT_EQ(fresh->position(), text == "no error" ? 5 : 0);
    return text;
  };
  EXPECT_EQ(attempt(bytes), "no error");
  for (size_t n = 1; n < bytes.size(); n += 97)
    EXPECT_TRUE(attempt(bytes.substr(0, n)).starts_with("format_error")) << n;
  for (size_t n = 0; n < bytes.size(); n += 41) {
    std::string changed = bytes;
    changed[n] = static_cast<char>(changed[n] ^ 0x40);
    EXPECT_NE(attempt(changed), "no error") << n;
  }
  EXPECT_TRUE(attempt(bytes + "x").starts_with("format_error"));
  // Another KV type of the same model.
  std::ofstream(file, std::ios::binary | std::ios::trunc) << bytes;
  LoadOptions q8;
  q8.kv = KvCacheType::kQ8;
  q8.n_threads = 1;
  const auto fresh = Engine::load(path_, q8)->new_session();
  EXPECT_TRUE(message([&] { fresh->load(file); }).starts_with("invalid_argument"));
}

TEST_F(SessionTest, NonFiniteWeightIsNamed) {
  TinyModel m;
  m.edit_tensors = [](std::vector<test::TinyTensor>& tensors) {
    for (auto& t : tensors) {
      if (t.name == "blk.1.ffn_up.weight")
        t.values[256 * 3 + 5] = std::numeric_limits<float>::quiet_NaN();
    }
  };
  const auto session = load(m)->new_session();
  std::vector<float> logits(300);
  const std::string text = message([&] { session->eval(prompt(4), logits); });
  EXPECT_TRUE(text.starts_with("format_error")) << text;
  EXPECT_NE(text.find("blk.1.ffn_up.weight"), std::string::npos) << text;
  EXPECT_NE(text.find("row 3"), std::string::npos) << text;
  EXPECT_EQ(session->position(), 0);
  EXPECT_TRUE(
      message([&] { session->generate(prompt(4), greedy(3)); }).starts_with("format_error"));
}

TEST_F(SessionTest, OverflowingResultIsNamed) {
  for (const auto& [tensor, expected] :
       {std::pair<std::string, std::string>{"blk.1.ffn_gate.weight", "blk.1.ffn_gate"},
        {"blk.0.attn_v.weight", "blk.0.attn_v"},
        {"output.weight", "logits"}}) {
    TinyModel m;
    m.edit_tensors = [&, name = tensor](std::vector<test::TinyTensor>& tensors) {
      for (auto& t : tensors) {
        if (t.name == name) std::fill(t.values.begin(), t.values.end(), 3e38F);
      }
    };
    LoadOptions options;
    options.exact = true;
    const auto session = load(m, options)->new_session();
    std::vector<float> logits(300);
    const std::string text = message([&] { session->eval(prompt(4), logits); });
    EXPECT_TRUE(text.starts_with("format_error")) << text;
    EXPECT_NE(text.find("of " + expected + " "), std::string::npos) << text;
  }
}

TEST_F(SessionTest, SessionsOfOneEngineRunAtTheSameTime) {
  LoadOptions options;
  options.n_threads = 2;
  const auto engine = load({}, options);
  std::vector<std::vector<int32_t>> expected;
  for (int i = 0; i < 4; ++i)
    expected.push_back(engine->new_session()->generate(prompt(20 + 30 * i), greedy(12)).token_ids);
  std::vector<std::vector<int32_t>> results(4);
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&, i] {
      results[static_cast<size_t>(i)] =
          engine->new_session()->generate(prompt(20 + 30 * i), greedy(12)).token_ids;
    });
  for (auto& t : threads)
    t.join();
  EXPECT_EQ(results, expected);
}

TEST_F(SessionTest, SessionOutlivesTheCallersEngine) {
  auto engine = load();
  const auto session = engine->new_session();
  engine.reset();
  EXPECT_EQ(session->generate(prompt(5), greedy(3)).generated_tokens, 3);
}

TEST(StopReasons, Names) {
  EXPECT_EQ(stop_reason_name(StopReason::kEndOfText), "end_of_text");
  EXPECT_EQ(stop_reason_name(StopReason::kContextFull), "context_full");
}

}  // namespace
}  // namespace ts
