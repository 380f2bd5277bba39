/// A fixed team of threads for short parallel regions (20-200 µs, hundreds per token).
///
/// Workers spin for about 20 µs after a region, so that the next one starts without a system call,
/// then sleep. Work is split statically: which thread computes what depends on the sizes and the
/// number of threads only. The calling thread is member 0 of the team.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

namespace ts {

class ThreadPool {
 public:
  /// Starts n_threads - 1 workers (n_threads >= 1, else InvalidArgument). `cores`: CPU numbers that
  /// the team is pinned to, member i to cores[i % size]; empty = not pinned. The calling thread is
  /// pinned only inside run(), never permanently. A core the process may not use is an
  /// InvalidArgument that names it; ResourceExhausted when the system refuses a thread.
  explicit ThreadPool(int n_threads, std::vector<int> cores = {});
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;
  ~ThreadPool();

  int n_threads() const noexcept { return n_threads_; }

  /// Runs fn(thread, n_threads) once on every member and waits for all of them. The first exception
  /// thrown by a member is thrown again here, after all have ended. Callers on several threads take
  /// turns. A call from inside a region of any pool is an InternalError.
  template <typename F>
  void run(F&& fn) {
    if (n_threads_ == 1) {
      const RegionMark mark;
      fn(0, 1);
      return;
    }
    using Fn = std::remove_reference_t<F>;
    run_erased(
        [](void* context, int thread, int count) { (*static_cast<Fn*>(context))(thread, count); },
        const_cast<void*>(static_cast<const void*>(std::addressof(fn))));
  }

  /// Splits [0, n) into at most n_threads contiguous ranges, whose bounds are multiples of `grain`,
  /// and runs fn(begin, end) on each. One range is run without waking anybody.
  template <typename F>
  void parallel_for(int64_t n, int64_t grain, F&& fn) {
    if (n <= 0) return;
    if (grain < 1) grain = 1;
    const int64_t n_grains = (n + grain - 1) / grain;
    if (n_grains == 1 || n_threads_ == 1) {
      const RegionMark mark;
      fn(int64_t{0}, n);
      return;
    }
    run([&](int thread, int count) {
      const auto [begin, end] = share(n, grain, thread, count);
      if (begin < end) fn(begin, end);
    });
  }

  /// The range of member `thread` of `count` in parallel_for(n, grain, ...).
  static std::pair<int64_t, int64_t> share(int64_t n, int64_t grain, int thread,
                                           int count) noexcept {
    const int64_t n_grains = (n + grain - 1) / grain;
    const int64_t begin = n_grains * thread / count * grain;
    const int64_t end = n_grains * (thread + 1) / count * grain;
    return {begin < n ? begin : n, end < n ? end : n};
  }

 private:
  /// Marks the current thread as inside a region; throws InternalError when it already is.
  struct RegionMark {
    RegionMark();
    ~RegionMark();
    RegionMark(const RegionMark&) = delete;
    RegionMark& operator=(const RegionMark&) = delete;
  };
  struct State;
  using Erased = void (*)(void* context, int thread, int n_threads);
  void run_erased(Erased fn, void* context);
  void worker(int thread);
  void stop() noexcept;

  int n_threads_ = 1;
  std::unique_ptr<State> state_;
};

}  // namespace ts
