/// A fixed team of threads for short parallel regions (20-200 µs, hundreds per token).
///
/// Workers spin briefly after a region, so that the next one starts without a system call, then
/// sleep. The calling thread is member 0 of the team.
///
/// Ranges are split so that a member that is late costs little, whatever delays it: another
/// process on its core, a slower core, waking up. Every member begins with a share of its own (the
/// same one whenever sizes and team are the same, so that its data stay near it), taken piece by
/// piece; a member that has finished its own takes pieces from the shares of others. The region
/// ends when all pieces are done: nobody waits for a member that has not begun one. Pieces get
/// smaller towards the end of a share. What a piece computes must not depend on the member that
/// computes it.
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

  /// Runs fn(thread, n_threads) once on every member and waits for all of them, late ones too. The
  /// first exception thrown by a member is thrown again here, after all have ended. Callers on
  /// several threads take turns. A call from inside a region of any pool is an InternalError.
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

  /// Splits [0, n) into ranges whose bounds are multiples of `grain` and runs
  /// fn(member, begin, end) on each; a member has one at a time, and may have none. A single range
  /// is run without waking anybody. Exceptions as in run(); after one, the rest is not computed.
  template <typename F>
  void for_ranges(int64_t n, int64_t grain, F&& fn) {
    if (n <= 0) return;
    if (grain < 1) grain = 1;
    if (n_threads_ == 1 || n <= grain) {
      const RegionMark mark;
      fn(0, int64_t{0}, n);
      return;
    }
    using Fn = std::remove_reference_t<F>;
    ranges_erased(
        n, grain,
        [](void* context, int member, int64_t begin, int64_t end) {
          (*static_cast<Fn*>(context))(member, begin, end);
        },
        const_cast<void*>(static_cast<const void*>(std::addressof(fn))));
  }

  /// for_ranges() for work without scratch of its own: fn(begin, end).
  template <typename F>
  void parallel_for(int64_t n, int64_t grain, F&& fn) {
    for_ranges(n, grain, [&fn](int, int64_t begin, int64_t end) { fn(begin, end); });
  }

  /// The share that member `thread` of `count` begins with in for_ranges(n, grain, ...).
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
  using ErasedRange = void (*)(void* context, int member, int64_t begin, int64_t end);
  void run_erased(Erased fn, void* context);
  void ranges_erased(int64_t n, int64_t grain, ErasedRange fn, void* context);
  void region(bool everybody);
  void worker(int thread);
  void stop() noexcept;

  int n_threads_ = 1;
  std::unique_ptr<State> state_;
};

}  // namespace ts
