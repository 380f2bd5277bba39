/// A backend for long passes over f32 weights: products by BLAS, everything else by another
/// backend.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "quantize/forwarding_backend.h"

namespace ts {

/// What the costly operations of one pass computed, in their order: a later pass over the same
/// rows, with the same weights up to there, takes them from here.
class PassMemo {
 public:
  /// Forgets all, and keeps the memory.
  void clear() noexcept {
    values_.clear();
    ends_.clear();
  }
  size_t n_results() const noexcept { return ends_.size(); }
  size_t bytes() const noexcept { return values_.capacity() * sizeof(float); }

 private:
  friend class BlasBackend;
  std::vector<float> values_;
  std::vector<size_t> ends_;
};

/// Products with f32 matrices that need no rotation, and attention over texts that begin with the
/// pass, are computed by BLAS in pieces whose shapes depend on the problem alone, so that results
/// do not depend on the number of threads. Such a text must end with the pass, too: its keys and
/// values are not stored. All other operations are those of the inner backend, and so is the
/// memory.
class ReplayingBackend : public ForwardingBackend {
 public:
  using ForwardingBackend::ForwardingBackend;
  /// Of the next pass, take the results of the first costly operations (products, attention,
  /// convolutions, delta rules) from `memo` as far as it has them, and with `record` add those it
  /// computes. Null: an ordinary pass. The memo must outlive the pass. Passes that use one must not
  /// overlap with others.
  virtual void replay(PassMemo* memo, bool record) = 0;
  /// Of every attention from now on, where it is computed here, puts the shares
  /// [n_heads, n_tokens, n_tokens] into `shares`; null ends it.
  virtual void watch_attention(std::vector<float>* shares) = 0;
};

std::shared_ptr<ReplayingBackend> make_blas_backend(std::shared_ptr<Backend> inner);

}  // namespace ts
