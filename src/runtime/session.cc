#include <algorithm>
#include <chrono>
#include <cstddef>
#include <utility>

#include <fmt/format.h>
#include <sys/resource.h>

#include <tensorsharp/error.hpp>

#include "model/model.h"
#include "runtime/sampler.h"
#include "runtime/session_impl.h"
#include "runtime/text_assembler.h"
#include "text/tokenizer.h"

namespace ts {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

int64_t major_faults() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_majflt;
}

bool is_up(const std::atomic<bool>* flag) {
  return flag != nullptr && flag->load(std::memory_order_relaxed);
}

StateLayout layout_of(const EngineImpl& engine) {
  StateLayout layout = engine.model().state_layout(engine.info().context, engine.kv_type());
  layout.checkpoint_bytes = engine.checkpoint_bytes();
  return layout;
}

}  // namespace

SessionImpl::SessionImpl(std::shared_ptr<const EngineImpl> engine)
    : engine_(std::move(engine)),
      state_(engine_->backend(), layout_of(*engine_)),
      workspace_(engine_->backend(), engine_->model().workspace_layout(engine_->chunk())) {}

void SessionImpl::truncate(int64_t length) {
  if (length < 0 || length > position())
    throw InvalidArgument(
        fmt::format("cannot cut a sequence of {} tokens to {} tokens", position(), length));
  if (length < state_.length()) state_.truncate(length);
  tokens_.resize(static_cast<size_t>(length));
  if (length == 0) restored_from_.clear();
}

int64_t SessionImpl::rewind_target(int64_t length) const {
  if (length >= state_.length()) return std::min(length, position());
  return state_.rewind_target(length);
}

void SessionImpl::catch_up(const std::atomic<bool>* cancel) {
  if (state_.length() == position()) return;
  const std::vector<int32_t> all = tokens_;
  tokens_.resize(static_cast<size_t>(state_.length()));
  try {
    append(std::span(all).subspan(tokens_.size()), {}, false, cancel);
  } catch (...) {
    tokens_ = all;
    throw;
  }
}

void SessionImpl::check_ids(std::span<const int32_t> ids) const {
  const int64_t n_vocab = engine_->info().n_vocab;
  for (const int32_t id : ids) {
    if (id < 0 || id >= n_vocab)
      throw InvalidArgument(
          fmt::format("token id {} is outside the vocabulary (0 to {})", id, n_vocab - 1));
  }
}

size_t SessionImpl::checkpoint_before(size_t end) const {
  // The next prompt of a conversation differs from the present one in the last tokens, where the
  // template announces the answer.
  constexpr size_t kMargin = 16;
  constexpr auto kGrid = static_cast<size_t>(kCheckpointGrid);
  if (state_.layout().max_checkpoints() == 0 || end < kMargin) return 0;
  return (end - kMargin) / kGrid * kGrid;
}

void SessionImpl::append(std::span<const int32_t> ids, std::span<float> logits, bool all,
                         const std::atomic<bool>* cancel,
                         const std::function<void(uint64_t, uint64_t)>& progress) {
  const auto chunk = static_cast<size_t>(engine_->chunk());
  const auto n_vocab = static_cast<size_t>(engine_->info().n_vocab);
  const size_t keep_at = ids.size() > 1 ? checkpoint_before(tokens_.size() + ids.size()) : 0;
  for (size_t done = 0; done < ids.size();) {
    const size_t at = tokens_.size();
    const size_t to_grid = chunk - at % chunk;
    size_t count = std::min(to_grid, ids.size() - done);
    if (at < keep_at) count = std::min(count, keep_at - at);
    ForwardRequest request;
    request.ids = ids.subspan(done, count);
    request.cancel = cancel;
    if (all) {
      request.logits = logits.subspan(done * n_vocab, count * n_vocab);
      request.all_logits = true;
    } else if (done + count == ids.size()) {
      request.logits = logits;
    }
    try {
      engine_->model().forward(request, state_, workspace_);
    } catch (const NonFiniteLogits& error) {
      std::vector<int32_t> sequence = tokens_;
      sequence.insert(sequence.end(), request.ids.begin(), request.ids.end());
      tokens_.resize(static_cast<size_t>(state_.length()));
      engine_->explain_non_finite(sequence, error.what(), restored_from_);
    } catch (...) {
      tokens_.resize(static_cast<size_t>(state_.length()));  // it may have lost the sequence
      throw;
    }
    tokens_.insert(tokens_.end(), request.ids.begin(), request.ids.end());
    if (tokens_.size() % kCheckpointGrid == 0) state_.checkpoint(tokens_.size() == keep_at);
    done += count;
    if (progress) progress(done, ids.size());
  }
}

void SessionImpl::eval(std::span<const int32_t> ids, std::span<float> logits, bool all,
                       const std::atomic<bool>* cancel) {
  check_ids(ids);
  const int64_t context = engine_->info().context;
  const auto count = static_cast<int64_t>(ids.size());
  if (count > context - position())
    throw ResourceExhausted(
        fmt::format("the context is full: it holds {} tokens, {} are used and {} more were given",
                    context, position(), count));
  catch_up(cancel);
  if (logits.empty()) {
    append(ids, {}, false, cancel);
    return;
  }
  const size_t rows = all ? ids.size() : 1;
  const auto n_vocab = static_cast<size_t>(engine_->info().n_vocab);
  if (ids.empty()) throw InvalidArgument("logits asked of no tokens; give at least one");
  if (logits.size() != rows * n_vocab)
    throw InvalidArgument(
        fmt::format("room for {} logits given, expected {} x {}", logits.size(), rows, n_vocab));
  append(ids, logits, all, cancel);
}

GenerateResult SessionImpl::generate(std::span<const int32_t> prompt,
                                     const GenerateOptions& options,
                                     const std::function<bool(const GeneratedToken&)>& on_token) {
  const auto start = Clock::now();
  const Tokenizer& tokenizer = *engine_->tokenizer();
  const int64_t context = engine_->info().context;
  const auto n_prompt = static_cast<int64_t>(prompt.size());
  if (prompt.empty()) throw InvalidArgument("the prompt is empty; give at least one token");
  check_ids(prompt);
  if (n_prompt > context)
    throw ResourceExhausted(
        fmt::format("the prompt has {} tokens, the context holds {}; shorten the prompt or use a "
                    "larger context",
                    n_prompt, context));
  if (options.n_logprobs < 0 || options.n_logprobs > engine_->info().n_vocab)
    throw InvalidArgument(fmt::format("n_logprobs is {}, expected 0 to {}", options.n_logprobs,
                                      engine_->info().n_vocab));
  if (options.max_tokens < -1)
    throw InvalidArgument(
        fmt::format("max_tokens is {}, expected -1 (no limit) or more", options.max_tokens));
  Sampler sampler(options.sampling, engine_->info().n_vocab);
  TextAssembler assembler(options.stop);
  const auto bos = tokenizer.data().bos;
  const bool only_bos = n_prompt == 1 && bos && prompt[0] == *bos;
  StreamDecoder decoder(engine_->tokenizer(), options.show_special, !only_bos);

  GenerateResult result;
  result.seed = sampler.seed();
  result.prompt_tokens = n_prompt;
  for (const int32_t id : prompt)
    sampler.accept(id);

  // Keep the common beginning; the last token is always computed, for its logits.
  const auto [kept, ignored] =
      std::mismatch(tokens_.begin(), tokens_.end(), prompt.begin(), prompt.end() - 1);
  result.cached_tokens =
      state_.rewind_target(std::min<int64_t>(kept - tokens_.begin(), state_.length()));
  truncate(result.cached_tokens);
  std::vector<float> logits(static_cast<size_t>(engine_->info().n_vocab));
  try {
    append(prompt.subspan(static_cast<size_t>(result.cached_tokens)), logits, false, options.cancel,
           [&](uint64_t done, uint64_t) {
             if (options.prompt_progress)
               options.prompt_progress(done + static_cast<uint64_t>(result.cached_tokens),
                                       static_cast<uint64_t>(n_prompt));
           });
  } catch (const Cancelled&) {
    result.prompt_seconds = seconds_since(start);
    result.stop_reason = StopReason::kCancelled;
    return result;
  }
  result.prompt_seconds = seconds_since(start);

  const auto decode_start = Clock::now();
  int64_t faults_before = 0;
  const int64_t room = context - n_prompt;
  const bool bounded = options.max_tokens >= 0 && options.max_tokens <= room;
  const int64_t limit = bounded ? options.max_tokens : room;
  result.stop_reason = bounded ? StopReason::kLength : StopReason::kContextFull;
  /// Hands a piece to the caller; false when it wants to stop.
  const auto deliver = [&](GeneratedToken& token) {
    result.text += token.text;
    if (options.n_logprobs > 0 && token.id >= 0) result.tokens.push_back(token);
    return !on_token || on_token(token);
  };
  bool text_ended = false;
  while (result.generated_tokens < limit) {
    if (is_up(options.cancel)) {
      result.stop_reason = StopReason::kCancelled;
      break;
    }
    const int32_t id = sampler.sample(logits);
    if (result.generated_tokens == 0) result.first_token_seconds = seconds_since(start);
    if (result.generated_tokens == 1) faults_before = major_faults();
    if (!options.ignore_end && tokenizer.is_end(id)) {
      result.stop_reason = StopReason::kEndOfText;
      break;
    }
    sampler.accept(id);
    result.token_ids.push_back(id);
    ++result.generated_tokens;
    const bool last = result.generated_tokens == limit;
    GeneratedToken token;
    token.id = id;
    token.text = assembler.push(decoder.push(id));
    if (last && !assembler.stopped()) {
      token.text += assembler.push(decoder.finish());
      if (!assembler.stopped()) token.text += assembler.finish();
      text_ended = true;
    }
    if (options.n_logprobs > 0) {
      token.logprob = token_logprob(logits, id);
      token.top = top_logprobs(logits, options.n_logprobs);
    }
    const bool go_on = deliver(token);
    if (assembler.stopped()) {
      result.stop_reason = StopReason::kStopString;
      break;
    }
    if (!go_on) {
      result.stop_reason = StopReason::kCancelled;
      break;
    }
    if (last) break;
    try {
      append(std::span(&id, 1), logits, false, options.cancel);
    } catch (const Cancelled&) {
      result.stop_reason = StopReason::kCancelled;
      break;
    }
  }
  if (!text_ended && !assembler.stopped()) {
    // What was held back for an incomplete character or a possible stop string.
    GeneratedToken rest;
    rest.id = -1;
    rest.text = assembler.push(decoder.finish());
    if (!assembler.stopped()) rest.text += assembler.finish();
    if (!rest.text.empty()) deliver(rest);
    if (assembler.stopped()) result.stop_reason = StopReason::kStopString;
  }
  result.generate_seconds = seconds_since(decode_start);
  // Tokens that were handed out but not computed (the last one; after an interrupt perhaps more)
  // belong to the sequence all the same. A stop text that was held back does not.
  if (result.stop_reason != StopReason::kStopString) {
    std::vector<int32_t> whole(prompt.begin(), prompt.end());
    whole.insert(whole.end(), result.token_ids.begin(), result.token_ids.end());
    if (whole.size() > tokens_.size()) tokens_ = std::move(whole);
  }
  if (result.generated_tokens > 1)
    engine_->note_page_faults(major_faults() - faults_before, result.generated_tokens - 1);
  return result;
}

std::unique_ptr<Session> SessionImpl::fork() const {
  auto copy = std::make_unique<SessionImpl>(engine_);
  copy->state_.copy_from(state_);
  copy->tokens_ = tokens_;
  copy->restored_from_ = restored_from_;
  return copy;
}

}  // namespace ts
