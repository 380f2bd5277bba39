/// Logits of token sequences, as the evaluations need them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include <tensorsharp/engine.hpp>

#include "base/progress.h"

namespace ts {

class LogitsSource {
 public:
  /// Sees the logits [n_vocab] that follow token `position` (0-based) of the sequence.
  using Visitor = std::function<void(size_t position, std::span<const float> logits)>;

  virtual ~LogitsSource() = default;
  virtual int64_t n_vocab() const = 0;
  /// Longest sequence there is room for.
  virtual int64_t context() const = 0;

  /// Begins the sequence `ids` (which must stay alive) and computes positions [0, first) without
  /// logits.
  virtual void start(std::span<const int32_t> ids, size_t first) = 0;
  /// Logits [count, n_vocab] of the next `count` positions, at most rows_at_once(), not beyond the
  /// sequence. Valid until the next call.
  virtual std::span<const float> next(size_t count) = 0;
  virtual size_t rows_at_once() const = 0;

  /// Computes `ids` from an empty context; visits positions [first, last) in order.
  void run(std::span<const int32_t> ids, size_t first, size_t last, const Visitor& visit);
};

/// Rows of logits to hold at a time: about 64 MB, so that large vocabularies need no large memory.
size_t logits_rows_at_once(int64_t n_vocab) noexcept;

/// A Session of an Engine. Logits are computed for a few tokens at a time; the numbers do not
/// depend on how many.
class SessionLogits : public LogitsSource {
 public:
  /// `cancel` is looked at every few hundred tokens; may be null. Not owned.
  explicit SessionLogits(std::shared_ptr<const Engine> engine, const CancelToken* cancel = nullptr);
  int64_t n_vocab() const override;
  int64_t context() const override;
  void start(std::span<const int32_t> ids, size_t first) override;
  std::span<const float> next(size_t count) override;
  size_t rows_at_once() const override { return rows_; }

 private:
  std::shared_ptr<const Engine> engine_;
  std::unique_ptr<Session> session_;
  const CancelToken* cancel_ = nullptr;
  size_t rows_ = 1;               ///< tokens whose logits are held at once
  std::vector<float> logits_;     ///< [rows_, n_vocab]
  std::span<const int32_t> ids_;  ///< of the present sequence
};

}  // namespace ts
