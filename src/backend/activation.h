/// The rows entering a Linear, with their derived forms (int8-quantized per group size; later:
/// rotated) computed on first use and shared by every Linear that reads the same rows.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "backend/matrix.h"

namespace ts {

/// A form a backend derived from the rows; its content is private to the backend.
class ActivationFormData {
 public:
  virtual ~ActivationFormData() = default;
};

/// Created once per place in a model's scratch memory and re-pointed with reset(), so that the
/// forms' memory is reused from token to token.
class Activation {
 public:
  Activation() = default;
  explicit Activation(Mat x) : x_(x) {}

  /// Points to new rows: all derived forms become stale (their memory stays).
  void reset(Mat x) {
    x_ = x;
    for (auto& slot : forms_)
      slot.valid = false;
  }
  Mat rows() const noexcept { return x_; }

  struct Slot {
    uint64_t key = 0;  ///< chosen by the backend: form and rotation
    bool valid = false;
    std::unique_ptr<ActivationFormData> data;
  };
  /// The slot of a key, made if missing. The caller fills it when !valid.
  Slot& slot(uint64_t key) {
    for (auto& s : forms_) {
      if (s.key == key) return s;
    }
    forms_.push_back({key, false, nullptr});
    return forms_.back();
  }

 private:
  Mat x_;
  std::vector<Slot> forms_;
};

}  // namespace ts
