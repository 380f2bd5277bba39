#include "eval/logits_source.h"

#include <algorithm>

namespace ts {
namespace {

// About 64 MB of logits at a time; a multiple of 64 tokens keeps prefill efficient.
constexpr size_t kLogitsBytes = size_t{64} << 20;
constexpr size_t kRowsGrain = 64;
constexpr size_t kMaxRows = 512;
// Tokens computed between two looks at the cancel flag.
constexpr size_t kContextPiece = 256;

}  // namespace

SessionLogits::SessionLogits(std::shared_ptr<const Engine> engine, const CancelToken* cancel)
    : engine_(std::move(engine)), session_(engine_->new_session()), cancel_(cancel) {
  const size_t row_bytes = static_cast<size_t>(n_vocab()) * sizeof(float);
  rows_ = std::clamp(kLogitsBytes / std::max<size_t>(row_bytes, 1) / kRowsGrain * kRowsGrain,
                     kRowsGrain, kMaxRows);
}

int64_t SessionLogits::n_vocab() const {
  return engine_->info().n_vocab;
}

int64_t SessionLogits::context() const {
  return engine_->info().context;
}

void SessionLogits::run(std::span<const int32_t> ids, size_t first, size_t last,
                        const Visitor& visit) {
  last = std::min(last, ids.size());
  session_->reset();
  for (size_t begin = 0; begin < std::min(first, last);) {
    if (cancel_ != nullptr) cancel_->check();
    const size_t count = std::min(kContextPiece, std::min(first, last) - begin);
    session_->eval(ids.subspan(begin, count), {});
    begin += count;
  }
  const auto vocab = static_cast<size_t>(n_vocab());
  for (size_t begin = first; begin < last;) {
    if (cancel_ != nullptr) cancel_->check();
    const size_t count = std::min(rows_, last - begin);
    logits_.resize(std::max(logits_.size(), count * vocab));
    const std::span<float> logits(logits_.data(), count * vocab);
    session_->eval(ids.subspan(begin, count), logits, true);
    for (size_t i = 0; i < count; ++i)
      visit(begin + i, logits.subspan(i * vocab, vocab));
    begin += count;
  }
}

}  // namespace ts
