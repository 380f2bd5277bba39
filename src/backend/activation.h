/// The rows entering a Linear, with their derived forms (rotated, int8-quantized per group size)
/// computed on first use and shared by every Linear that reads the same rows in the same form.
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

  /// Points to new rows: all derived forms become stale (their memory stays). Forms that were read
  /// since the last reset are remembered as expected.
  void reset(Mat x) {
    x_ = x;
    for (auto& slot : forms_) {
      slot.expected = slot.read;
      slot.read = slot.valid = false;
    }
  }
  Mat rows() const noexcept { return x_; }

  struct Slot {
    uint64_t key = 0;  ///< chosen by the backend: form and rotation
    bool valid = false;
    bool read = false;  ///< a product has used it since the last reset
    /// The rows before these were read in this form, so probably these will be: whoever makes the
    /// rows may make the form at once. Only speed depends on it.
    bool expected = false;
    std::unique_ptr<ActivationFormData> data;
  };
  /// The slot of a key, made if missing. The caller fills it when !valid.
  Slot& slot(uint64_t key) {
    for (auto& s : forms_) {
      if (s.key == key) return s;
    }
    forms_.push_back({key, false, false, false, nullptr});
    return forms_.back();
  }
  std::vector<Slot>& slots() noexcept { return forms_; }

 private:
  Mat x_;
  std::vector<Slot> forms_;
};

}  // namespace ts
