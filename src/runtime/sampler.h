/// Choosing the next token from logits.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include <tensorsharp/engine.hpp>

namespace ts {

/// One per generation; not thread-safe. Deterministic: same options, seed, history and logits give
/// the same token on every machine.
class Sampler {
 public:
  /// Checks the options: InvalidArgument names the option, its value and the legal range. Without a
  /// seed a random one is drawn; seed() reports it.
  Sampler(const SamplingOptions& options, int64_t n_vocab);
  ~Sampler();
  Sampler(Sampler&&) noexcept;
  Sampler& operator=(Sampler&&) noexcept;

  uint64_t seed() const noexcept;
  /// Adds a token (of the prompt or generated) to the history the penalties look at.
  void accept(int32_t id);
  /// logits [n_vocab], unmodified model output. Throws FormatError when a logit is NaN or +inf or
  /// all are -inf.
  int32_t sample(std::span<const float> logits);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Natural log-probabilities of the unmodified distribution: of `id`, and of the n most likely
/// tokens (most likely first; ties by lower id).
float token_logprob(std::span<const float> logits, int32_t id);
std::vector<TokenLogprob> top_logprobs(std::span<const float> logits, int n);

}  // namespace ts
