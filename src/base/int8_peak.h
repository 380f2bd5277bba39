/// The rate of 8-bit products that the processor reaches on registers alone: the ceiling that
/// prefill is compared with.
#pragma once

#include <memory>
#include <string_view>

namespace ts {

/// Runs the multiply-and-add instructions of one instruction set on registers, on all threads at
/// once: vpmaddubsw and vpaddw for avx2, vpdpbusd for avx_vnni (32-byte vectors) and avx512_vnni
/// (64-byte). No memory is touched.
class Int8PeakMeter {
 public:
  /// `isa` as isa_names() has them; this CPU must be able to run it.
  Int8PeakMeter(int n_threads, std::string_view isa);
  ~Int8PeakMeter();
  Int8PeakMeter(const Int8PeakMeter&) = delete;
  Int8PeakMeter& operator=(const Int8PeakMeter&) = delete;

  /// False for instruction sets without such a loop here (ref, and other processors).
  bool known() const noexcept;
  /// Multiplications and additions per second of all threads, over about `seconds`. known() only.
  double pass(double seconds = 0.03);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ts
