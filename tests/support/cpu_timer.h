/// Processor time of the calling thread, which does not depend on what else the machine does.
#pragma once

#include <ctime>

namespace ts::test {

/// What limits on time are multiplied by where sanitizers slow every access down.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr double kTimeFactor = 10;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
inline constexpr double kTimeFactor = 10;
#else
inline constexpr double kTimeFactor = 1;
#endif
#else
inline constexpr double kTimeFactor = 1;
#endif

class CpuTimer {
 public:
  CpuTimer() : start_(now()) {}
  double seconds() const { return now() - start_; }

 private:
  static double now() {
    timespec t{};
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
  }
  double start_;
};

}  // namespace ts::test
