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
  /// Longest sequence run() accepts.
  virtual int64_t context() const = 0;
  /// Computes `ids` from an empty context; visits positions [first, last) in order.
  virtual void run(std::span<const int32_t> ids, size_t first, size_t last,
                   const Visitor& visit) = 0;
};

/// A Session of an Engine. Logits are computed for a few tokens at a time, so that large
/// vocabularies need no large memory; the numbers do not depend on how many.
class SessionLogits : public LogitsSource {
 public:
  /// `cancel` is looked at every few hundred tokens; may be null. Not owned.
  explicit SessionLogits(std::shared_ptr<const Engine> engine, const CancelToken* cancel = nullptr);
  int64_t n_vocab() const override;
  int64_t context() const override;
  void run(std::span<const int32_t> ids, size_t first, size_t last, const Visitor& visit) override;

 private:
  std::shared_ptr<const Engine> engine_;
  std::unique_ptr<Session> session_;
  const CancelToken* cancel_ = nullptr;
  size_t rows_ = 1;            ///< tokens whose logits are held at once
  std::vector<float> logits_;  ///< [rows_, n_vocab]
};

}  // namespace ts
