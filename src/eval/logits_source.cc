#include "eval/logits_source.h"

#include <algorithm>

#include <fmt/format.h>

#include <tensorsharp/error.hpp>

namespace ts {
namespace {

// About 64 MB of logits at a time; a multiple of 64 tokens keeps prefill efficient.
constexpr size_t kLogitsBytes = size_t{64} << 20;
constexpr size_t kRowsGrain = 64;
constexpr size_t kMaxRows = 512;
// Tokens computed between two looks at the cancel flag.
constexpr size_t kContextPiece = 256;

}  // namespace

size_t logits_rows_at_once(int64_t n_vocab) noexcept {
  const size_t row_bytes = static_cast<size_t>(std::max<int64_t>(n_vocab, 1)) * sizeof(float);
  return std::clamp(kLogitsBytes / row_bytes / kRowsGrain * kRowsGrain, kRowsGrain, kMaxRows);
}

void LogitsSource::run(std::span<const int32_t> ids, size_t first, size_t last,
                       const Visitor& visit) {
  last = std::min(last, ids.size());
  if (first >= last) return;
  start(ids, first);
  const auto vocab = static_cast<size_t>(n_vocab());
  for (size_t begin = first; begin < last;) {
    const size_t count = std::min(rows_at_once(), last - begin);
    const std::span<const float> logits = next(count);
    for (size_t i = 0; i < count; ++i)
      visit(begin + i, logits.subspan(i * vocab, vocab));
    begin += count;
  }
}

SessionLogits::SessionLogits(std::shared_ptr<const Engine> engine, const CancelToken* cancel)
    : engine_(std::move(engine)),
      session_(engine_->new_session()),
      cancel_(cancel),
      rows_(logits_rows_at_once(engine_->info().n_vocab)) {}

int64_t SessionLogits::n_vocab() const {
  return engine_->info().n_vocab;
}

int64_t SessionLogits::context() const {
  return engine_->info().context;
}

void SessionLogits::start(std::span<const int32_t> ids, size_t first) {
  ids_ = ids;
  session_->reset();
  first = std::min(first, ids.size());
  for (size_t begin = 0; begin < first;) {
    if (cancel_ != nullptr) cancel_->check();
    const size_t count = std::min(kContextPiece, first - begin);
    session_->eval(ids.subspan(begin, count), {});
    begin += count;
  }
}

std::span<const float> SessionLogits::next(size_t count) {
  if (cancel_ != nullptr) cancel_->check();
  const auto at = static_cast<size_t>(session_->position());
  if (count > rows_ || count > ids_.size() - at)
    throw InternalError(fmt::format("{} rows of logits asked for at once after {} of {} tokens",
                                    count, at, ids_.size()));
  const size_t n = count * static_cast<size_t>(n_vocab());
  logits_.resize(std::max(logits_.size(), n));
  session_->eval(ids_.subspan(at, count), std::span(logits_).first(n), true);
  return std::span(logits_).first(n);
}

}  // namespace ts
