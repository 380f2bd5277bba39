// Sequences of models with recurrent layers: going back, copying, saving. A recurrent state cannot
// be cut, so a session remembers states on a grid of 64 tokens; what is computed again from there
// equals the first time bit for bit.
#include <algorithm>
#include <atomic>
#include <fstream>
#include <iterator>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <tensorsharp/engine.hpp>

#include "base/sha256.h"
#include "support/error_matchers.h"
#include "support/temp_dir.h"

namespace ts {
namespace {

class HybridSession : public testing::Test {
 protected:
  static std::shared_ptr<const Engine> load(uint64_t checkpoint_bytes = uint64_t{320} << 20,
                                            int64_t chunk = 256) {
    LoadOptions o;
    o.n_threads = 1;
    o.context = 2048;
    o.prefill_chunk = chunk;
    o.checkpoint_bytes = checkpoint_bytes;
    return Engine::load(TS_TESTDATA_DIR "/qwen35/folded_ptq1_0.gguf", o);
  }
  static std::vector<int32_t> prompt(size_t count, int32_t seed = 0) {
    std::vector<int32_t> ids;
    for (size_t i = 0; i < count; ++i)
      ids.push_back(static_cast<int32_t>((i * 37 + 11 + static_cast<size_t>(seed)) % 250));
    return ids;
  }
  /// The first `shared` ids of prompt(), then others.
  static std::vector<int32_t> variant(size_t shared, size_t count) {
    std::vector<int32_t> ids = prompt(shared);
    const auto more = prompt(count - shared, 101);
    ids.insert(ids.end(), more.begin(), more.end());
    return ids;
  }
  static GenerateOptions greedy(int64_t n) {
    GenerateOptions o;
    o.sampling.temperature = 0;
    o.max_tokens = n;
    o.ignore_end = true;
    return o;
  }
  static std::vector<float> logits_of(Session& session, std::span<const int32_t> ids,
                                      const Engine& engine) {
    std::vector<float> logits(static_cast<size_t>(engine.info().n_vocab));
    session.eval(ids, logits);
    return logits;
  }
  static std::vector<float> cold(const Engine& engine, const std::vector<int32_t>& ids) {
    return logits_of(*engine.new_session(), ids, engine);
  }
  /// What one remembered state costs, at most a sixteenth more.
  static uint64_t state_bytes() {
    for (uint64_t bytes = 16384;; bytes += bytes / 16) {
      const auto engine = load(bytes);
      const auto session = engine->new_session();
      session->eval(prompt(64), {});
      session->eval(prompt(1), {});
      if (session->rewind_target(64) == 64) return bytes;
    }
  }
  test::TempDir directory_;
};

TEST_F(HybridSession, GoesBackToARememberedPositionAndEqualsTheColdRun) {
  const auto engine = load();
  const auto session = engine->new_session();
  session->generate(prompt(300), greedy(4));
  // 256 by the chunk of the prefill; a prompt that differs from 290 on finds it.
  const auto other = variant(290, 310);
  const auto result = session->generate(other, greedy(8));
  EXPECT_EQ(result.cached_tokens, 256);
  const auto expected = engine->new_session()->generate(other, greedy(8));
  EXPECT_EQ(expected.cached_tokens, 0);
  EXPECT_EQ(result.token_ids, expected.token_ids);

  session->truncate(session->rewind_target(270));
  EXPECT_EQ(session->position(), 256);
  const auto rest = std::span(other).subspan(256);
  EXPECT_EQ(logits_of(*session, rest, *engine), cold(*engine, other));
}

TEST_F(HybridSession, AConversationReadsOnlyWhatIsNew) {
  const auto engine = load();
  const auto session = engine->new_session();
  std::vector<int32_t> ids = prompt(130);
  auto result = session->generate(ids, greedy(70));
  EXPECT_EQ(result.cached_tokens, 0);
  const auto held = session->position();
  ids.insert(ids.end(), result.token_ids.begin(), result.token_ids.end());
  const auto more = prompt(20, 7);
  ids.insert(ids.end(), more.begin(), more.end());
  result = session->generate(ids, greedy(1));
  EXPECT_EQ(held, 200);
  EXPECT_EQ(result.cached_tokens, 199);  // the last token was handed out, not computed

  // A template that drops the end of the prompt and the answer (its reasoning): what is read again
  // begins shortly before the end of the first prompt.
  std::vector<int32_t> shorter = variant(125, 180);
  result = session->generate(shorter, greedy(1));
  EXPECT_EQ(result.cached_tokens, 64);
}

TEST_F(HybridSession, TheLastTokenOfAnAnswerBelongsToTheSequence) {
  const auto engine = load();
  const auto ids = prompt(20);
  const auto whole = engine->new_session()->generate(ids, greedy(12)).token_ids;
  // In pieces, through a file every time.
  const std::string file = (directory_.path() / "s.session").string();
  std::vector<int32_t> sequence = ids, got;
  for (int piece = 0; piece < 4; ++piece) {
    const auto session = engine->new_session();
    if (piece > 0) {
      session->load(file);
      sequence.assign(session->tokens().begin(), session->tokens().end());
    }
    const auto result = session->generate(sequence, greedy(3));
    got.insert(got.end(), result.token_ids.begin(), result.token_ids.end());
    session->save(file);
  }
  EXPECT_EQ(got, whole);
  // Tokens that follow are computed after it.
  const auto session = engine->new_session();
  const auto answer = session->generate(ids, greedy(3)).token_ids;
  EXPECT_EQ(session->position(), 23);
  const auto next = prompt(2, 7);
  const auto logits = logits_of(*session, next, *engine);
  std::vector<int32_t> all = ids;
  all.insert(all.end(), answer.begin(), answer.end());
  const auto cold_session = engine->new_session();
  cold_session->eval(all, {});
  EXPECT_EQ(logits, logits_of(*cold_session, next, *engine));
}

TEST_F(HybridSession, CannotBeCutAnywhereElse) {
  const auto engine = load();
  const auto session = engine->new_session();
  session->eval(prompt(100), {});
  EXPECT_EQ(session->rewind_target(99), 64);
  EXPECT_EQ(session->rewind_target(100), 100);
  EXPECT_EQ(session->rewind_target(63), 0);
  EXPECT_THROW(session->truncate(99), InvalidArgument);
  EXPECT_THROW(session->truncate(101), InvalidArgument);
  EXPECT_THROW(session->truncate(-1), InvalidArgument);
  EXPECT_EQ(session->position(), 100);
  session->truncate(0);
  EXPECT_EQ(logits_of(*session, prompt(100), *engine), cold(*engine, prompt(100)));
}

TEST_F(HybridSession, MemoryOfRememberedStatesIsBounded) {
  const uint64_t each = state_bytes();
  ASSERT_GT(each, 0u);
  for (const int most : {0, 1, 2, 3, 7}) {
    const auto engine = load(each * static_cast<uint64_t>(most) + 16, 64);
    const auto session = engine->new_session();
    session->eval(prompt(1000), {});
    std::vector<int64_t> targets;
    for (int64_t at = session->position() - 1; at > 0; --at) {
      const int64_t target = session->rewind_target(at);
      if (target > 0 && (targets.empty() || targets.back() != target)) targets.push_back(target);
    }
    EXPECT_EQ(targets.size(), static_cast<size_t>(most)) << most;
    // The one shortly before the end of the prompt is always among them.
    if (most > 0) {
      EXPECT_NE(std::find(targets.begin(), targets.end(), 960), targets.end()) << most;
    }
    if (most == 7) {
      EXPECT_LT(targets.back(), 512) << "none far back";
    }
  }
}

TEST_F(HybridSession, SavedAndForkedSessionsContinueTheSameAndCanGoBack) {
  const auto engine = load();
  const auto session = engine->new_session();
  session->eval(prompt(200), {});
  const std::string file = (directory_.path() / "s.session").string();
  session->save(file, false, "a note");
  const auto loaded = engine->new_session();
  loaded->eval(prompt(77, 5), {});
  EXPECT_EQ(loaded->load(file), "a note");
  const auto forked = session->fork();
  const auto next = prompt(30, 9);
  const auto expected = logits_of(*session, next, *engine);
  const auto other = variant(140, 190);
  for (const auto& s : {loaded.get(), forked.get()}) {
    EXPECT_EQ(s->position(), 200);
    EXPECT_EQ(logits_of(*s, next, *engine), expected);
    const auto result = s->generate(other, greedy(5));
    EXPECT_EQ(result.cached_tokens, 128);
    EXPECT_EQ(result.token_ids, engine->new_session()->generate(other, greedy(5)).token_ids);
  }
  // With less room for states the file still loads; the session goes back less far.
  const auto small = load(0)->new_session();
  small->load(file);
  EXPECT_EQ(small->rewind_target(199), 0);
  EXPECT_EQ(small->rewind_target(200), 200);
}

TEST_F(HybridSession, AStoppedPassLeavesAStateThatIsRight) {
  const auto engine = load();
  const auto session = engine->new_session();
  session->eval(prompt(200), {});
  std::atomic<bool> cancel{true};
  const auto more = prompt(20, 3);
  EXPECT_THROW(session->eval(more, {}, false, &cancel), Cancelled);
  // Whatever position it is at, going on from there gives what a cold run gives.
  auto whole = prompt(200);
  whole.insert(whole.end(), more.begin(), more.end());
  const auto at = static_cast<size_t>(session->position());
  EXPECT_EQ(at % 64 == 0 || at == 200, true) << at;
  const std::vector<int32_t> held(session->tokens().begin(), session->tokens().end());
  EXPECT_EQ(held, std::vector<int32_t>(whole.begin(), whole.begin() + static_cast<long>(at)));
  const auto logits = logits_of(*session, std::span(whole).subspan(at), *engine);
  const auto expected = cold(*engine, whole);
  for (size_t i = 0; i < logits.size(); ++i)
    EXPECT_NEAR(logits[i], expected[i], 0.05F);
}

TEST_F(HybridSession, DamagedFilesAreRefusedAndChangeNothing) {
  const auto engine = load();
  const auto session = engine->new_session();
  session->eval(prompt(130), {});
  const std::string file = (directory_.path() / "s.session").string();
  session->save(file);
  std::ifstream in(file, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(in), {}};
  const auto other = engine->new_session();
  other->eval(prompt(70, 2), {});
  for (const size_t cut : {size_t{0}, size_t{7}, size_t{100}, bytes.size() / 2, bytes.size() - 1}) {
    const std::string damaged = (directory_.path() / "damaged.session").string();
    std::ofstream(damaged, std::ios::binary) << bytes.substr(0, cut);
    EXPECT_THROW(other->load(damaged), Error) << cut;
    EXPECT_EQ(other->position(), 70);
  }
  EXPECT_EQ(logits_of(*other, prompt(5, 9), *engine).size(),
            static_cast<size_t>(engine->info().n_vocab));
}

// A session file is signed, but by whoever wrote it: numbers that are none must not come back as
// text, nor be blamed on the model.
TEST_F(HybridSession, SavedStatesThatAreNoNumbersAreRefused) {
  const auto engine = load();
  const auto session = engine->new_session();
  session->eval(prompt(130), {});
  const std::string file = (directory_.path() / "s.session").string();
  session->save(file, false, "note");
  std::ifstream in(file, std::ios::binary);
  const std::string good{std::istreambuf_iterator<char>(in), {}};
  constexpr size_t kDigest = 64;
  const size_t state_begin = 8 + 64 + 8 + 130 * 4 + 8 + 8;
  const size_t state_end = good.size() - kDigest - 4 - 8;
  const auto load_with = [&](size_t at, const std::string& value) {
    std::string bytes = good.substr(0, good.size() - kDigest);
    bytes.replace(at, value.size(), value);
    bytes += sha256_hex(std::as_bytes(std::span(bytes)));
    std::ofstream(file, std::ios::binary | std::ios::trunc) << bytes;
    const auto other = engine->new_session();
    other->eval(prompt(7), {});
    return test::catch_error([&] {
      other->load(file);
      EXPECT_EQ(other->position(), 130);
      throw Cancelled("loaded");
    });
  };
  EXPECT_EQ(load_with(0, good.substr(0, 1)).code, ErrorCode::kCancelled);
  const std::string nan("\0\0\xC0\x7F", 4), minus_infinity("\0\0\x80\xFF", 4);
  for (const std::string& value : {nan, minus_infinity}) {
    const test::Thrown thrown = load_with(state_end - 4, value);  // of a remembered state
    EXPECT_EQ(thrown.code, ErrorCode::kFormat);
    EXPECT_NE(thrown.message.find(file), std::string::npos) << thrown.message;
    EXPECT_NE(thrown.message.find("recurrent state"), std::string::npos) << thrown.message;
    EXPECT_EQ(thrown.message.find(engine->info().path), std::string::npos) << thrown.message;
  }
  const test::Thrown thrown = load_with(state_begin, std::string("\0\x7E", 2));
  EXPECT_EQ(thrown.code, ErrorCode::kFormat);
  EXPECT_NE(thrown.message.find("keys and values"), std::string::npos) << thrown.message;
}

}  // namespace
}  // namespace ts
