#include "base/thread_pool.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>

#include <fmt/format.h>
#include <pthread.h>
#include <sched.h>

#include <tensorsharp/error.hpp>

namespace ts {
namespace {

thread_local bool inside_region = false;

constexpr auto kSpinTime = std::chrono::microseconds(20);

inline void cpu_relax() noexcept {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

/// Waits until `value` differs from `old`: spins first, then sleeps. Reading the clock costs about
/// as much as a few pauses, so it is read once in 32 rounds.
template <typename T>
T wait_for_change(const std::atomic<T>& value, T old) noexcept {
  const auto end = std::chrono::steady_clock::now() + kSpinTime;
  for (;;) {
    for (int i = 0; i < 32; ++i) {
      const T now = value.load(std::memory_order_acquire);
      if (now != old) return now;
      cpu_relax();
    }
    if (std::chrono::steady_clock::now() >= end) break;
  }
  for (;;) {
    value.wait(old, std::memory_order_acquire);
    const T now = value.load(std::memory_order_acquire);
    if (now != old) return now;
  }
}

void pin_current_thread(int core) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(static_cast<size_t>(core), &set);
  pthread_setaffinity_np(pthread_self(), sizeof(set), &set);
}

void check_cores(const std::vector<int>& cores) {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  sched_getaffinity(0, sizeof(allowed), &allowed);
  for (const int core : cores) {
    if (core < 0 || core >= CPU_SETSIZE || !CPU_ISSET(static_cast<size_t>(core), &allowed))
      throw InvalidArgument(
          fmt::format("--cores: this process may not run on CPU {}; see `taskset -p $$`", core));
  }
}

using Clock = std::chrono::steady_clock;

// The scheduler hands out cores for milliseconds, a region takes microseconds. So a worker whose
// core is used by somebody else may cost more than it gives; it sits out for a while, longer when
// it does so again, and is back soon after the core is free. The reasons:
// - It lost its core in the middle of a piece: the others had to wait for it, longer than kStall
// and
//   than a quarter of the region. It sits out eight times as long as it cost.
// - It was woken on the caller's own CPU, where it can only take turns with it.
// - All of them, when over a stretch of time the team was no faster than the caller alone would
// have
//   been, judged by the share of the work that the caller did and the time it took for that.
constexpr auto kStall = std::chrono::microseconds(200);
constexpr Clock::duration kShortPenalty = std::chrono::milliseconds(5);
constexpr Clock::duration kTeamPenalty = std::chrono::milliseconds(20);
constexpr Clock::duration kLongestPenalty = std::chrono::milliseconds(400);
constexpr double kJudgedSeconds = 0.004, kLeastGain = 1.05;

// `gate`: the region that may be entered, whether it is open, and how many members are inside.
constexpr uint64_t kInside = 0xFFFF;
constexpr uint64_t kOpen = uint64_t{1} << 16;
constexpr uint64_t kEverybody = uint64_t{1} << 17;  ///< all workers count as inside already
constexpr int kRegionShift = 32;

}  // namespace

struct ThreadPool::State {
  /// A member's share of a region and whether it takes part; cache lines of its own.
  struct alignas(64) Member {
    std::atomic<int64_t> next{0};  ///< where the share stands
    int64_t end = 0;
    std::atomic<bool> inside{false};
    std::atomic<uint32_t> benched{0};  ///< 1 = takes no part and sleeps
    std::atomic<bool> crowds{false};   ///< woke up on the caller's own CPU
    // The caller's alone: the end of the last time on the bench, and its length.
    Clock::time_point until;
    Clock::duration penalty{};
    bool late = false;
  };

  explicit State(int n) : n_members(n), members(static_cast<size_t>(n)) {}

  const int n_members;
  std::vector<int> cores;
  std::vector<std::thread> threads;
  std::mutex turn;  ///< held by the caller whose region runs

  alignas(64) std::atomic<uint32_t> generation{0};  ///< one more per region; workers wait for it
  alignas(64) std::atomic<uint64_t> gate{0};
  alignas(64) std::atomic<uint32_t> left{0};  ///< changes when the last member leaves a closed gate
  alignas(64) std::atomic<bool> stopping{false};
  std::atomic<bool> failed{false};
  // Written by the caller while the gate is closed and nobody inside, read by those inside.
  Erased fn = nullptr;
  ErasedRange range_fn = nullptr;
  void* context = nullptr;
  int64_t range = 0, grain = 1;
  std::vector<Member> members;
  std::atomic<int> caller_cpu{-1};
  std::atomic<bool> crowded{false};  ///< some member crowds
  // The caller's alone:
  size_t n_benched = 0;
  int64_t caller_work = 0;  ///< of this region, in units of the range
  double team_seconds = 0, alone_seconds = 0;
  std::mutex error_mutex;
  std::exception_ptr error;

  /// True when the calling worker is inside region `number`, false when that is over.
  bool enter(uint32_t number, Member& me) noexcept {
    uint64_t now = gate.load(std::memory_order_acquire);
    if (now >> kRegionShift == number && (now & kEverybody)) return true;
    if (now >> kRegionShift == number && (now & kOpen) &&
        sched_getcpu() == caller_cpu.load(std::memory_order_relaxed)) {
      me.crowds.store(true, std::memory_order_relaxed);
      crowded.store(true, std::memory_order_relaxed);
      generation.wait(number,
                      std::memory_order_acquire);  // without spinning: the caller needs the CPU
      return false;
    }
    while (now >> kRegionShift == number && (now & kOpen)) {
      if (gate.compare_exchange_weak(now, now + 1, std::memory_order_acq_rel,
                                     std::memory_order_acquire))
        return true;
    }
    return false;
  }

  void leave() noexcept {
    const uint64_t before = gate.fetch_sub(1, std::memory_order_acq_rel);
    if ((before & kInside) == 1 && !(before & kOpen)) {
      left.fetch_add(1, std::memory_order_release);
      left.notify_one();
    }
  }

  bool empty() const noexcept { return (gate.load(std::memory_order_acquire) & kInside) == 0; }

  /// Waits until nobody is inside the closed gate of a region that began at `start`.
  void wait_until_empty(Clock::time_point start) noexcept {
    uint32_t seen = left.load(std::memory_order_acquire);
    if (empty()) return;
    const auto since = Clock::now();
    for (auto now = since; now - since < kStall; now = Clock::now()) {
      for (int i = 0; i < 32; ++i) {
        if (empty()) return;
        cpu_relax();
      }
      if (now - since > kSpinTime) std::this_thread::yield();  // perhaps it waits for this core
    }
    for (Member& member : members)
      member.late = member.inside.load(std::memory_order_relaxed);
    while (!empty())
      seen = wait_for_change(left, seen);
    const auto now = Clock::now();
    if ((now - since) * 4 < since - start) return;
    for (Member& member : members) {
      if (member.late) bench(member, now, 8 * (now - since));
    }
  }

  bool all_benched() const noexcept { return n_benched == members.size() - 1; }

  void bench(Member& member, Clock::time_point now, Clock::duration least) noexcept {
    if (member.benched.load(std::memory_order_relaxed) != 0) return;
    const bool again = now - member.until < 4 * member.penalty;
    if (again) least = std::max(least, 2 * member.penalty);
    member.penalty = std::min(least, kLongestPenalty);
    member.until = now + member.penalty;
    member.benched.store(1, std::memory_order_relaxed);
    ++n_benched;
  }

  /// After a range that was begun at `start`; the caller ended its own work at `done`.
  void judge(Clock::time_point start, Clock::time_point done) noexcept {
    if (all_benched()) return;
    const auto now = Clock::now();
    if (crowded.load(std::memory_order_relaxed)) {
      crowded.store(false, std::memory_order_relaxed);
      for (size_t i = 1; i < members.size(); ++i) {
        if (members[i].crowds.exchange(false, std::memory_order_relaxed))
          bench(members[i], now, kShortPenalty);
      }
    }
    const auto seconds = [](Clock::duration d) { return std::chrono::duration<double>(d).count(); };
    const double team = seconds(now - start);
    team_seconds += team;
    // Where the caller came too late for any, the others were fast enough.
    alone_seconds += caller_work > 0 ? seconds(done - start) * static_cast<double>(range) /
                                           static_cast<double>(caller_work)
                                     : 2 * team;
    if (team_seconds < kJudgedSeconds) return;
    if (alone_seconds < kLeastGain * team_seconds) {
      for (size_t i = 1; i < members.size(); ++i)
        bench(members[i], now, kTeamPenalty);
    }
    team_seconds = alone_seconds = 0;
  }

  /// Ends the time on the bench where it is over, or for all.
  void return_from_bench(bool all) noexcept {
    if (n_benched == 0) return;
    const auto now = Clock::now();
    for (Member& member : members) {
      if (member.benched.load(std::memory_order_relaxed) == 0 || (!all && now < member.until))
        continue;
      member.benched.store(0, std::memory_order_release);
      member.benched.notify_one();
      --n_benched;
      team_seconds = alone_seconds = 0;
    }
  }

  /// Takes the next piece of a share: a quarter of what is left, at least a grain.
  bool take(Member& owner, int64_t& begin, int64_t& end) noexcept {
    begin = owner.next.load(std::memory_order_relaxed);
    while (begin < owner.end) {
      const int64_t size = std::max((owner.end - begin) / 4 / grain, int64_t{1}) * grain;
      end = std::min(begin + size, owner.end);
      if (owner.next.compare_exchange_weak(begin, end, std::memory_order_relaxed)) return true;
    }
    return false;
  }

  void call(int member) noexcept {
    inside_region = true;
    try {
      if (fn) {
        fn(context, member, n_members);
      } else {
        int64_t begin = 0, end = 0;
        for (int i = 0; i < n_members; ++i) {
          Member& owner = members[static_cast<size_t>((member + i) % n_members)];
          while (!failed.load(std::memory_order_relaxed) && take(owner, begin, end)) {
            range_fn(context, member, begin, end);
            if (member == 0) caller_work += end - begin;
          }
        }
      }
    } catch (...) {
      failed.store(true, std::memory_order_relaxed);
      const std::lock_guard lock(error_mutex);
      if (!error) error = std::current_exception();
    }
    inside_region = false;
  }
};

ThreadPool::RegionMark::RegionMark() {
  if (inside_region) throw InternalError("a parallel region was started inside another one");
  inside_region = true;
}

ThreadPool::RegionMark::~RegionMark() {
  inside_region = false;
}

ThreadPool::ThreadPool(int n_threads, std::vector<int> cores) : n_threads_(n_threads) {
  constexpr int kMaxThreads = 1024;
  if (n_threads < 1 || n_threads > kMaxThreads)
    throw InvalidArgument(fmt::format("threads: {} is not in 1..{}", n_threads, kMaxThreads));
  check_cores(cores);
  state_ = std::make_unique<State>(n_threads);
  state_->cores = std::move(cores);
  try {
    for (int i = 1; i < n_threads; ++i)
      state_->threads.emplace_back([this, i] { worker(i); });
  } catch (const std::system_error& e) {
    const size_t started = state_->threads.size();
    stop();
    throw ResourceExhausted(fmt::format("could not start thread {} of {}: {}; use fewer threads",
                                        started + 2, n_threads, e.what()));
  }
}

ThreadPool::~ThreadPool() {
  stop();
}

void ThreadPool::stop() noexcept {
  state_->stopping.store(true, std::memory_order_relaxed);
  state_->generation.fetch_add(1, std::memory_order_release);
  state_->generation.notify_all();
  state_->return_from_bench(true);
  for (auto& thread : state_->threads)
    thread.join();
}

void ThreadPool::worker(int thread) {
  State& s = *state_;
  if (!s.cores.empty()) pin_current_thread(s.cores[static_cast<size_t>(thread) % s.cores.size()]);
  State::Member& me = s.members[static_cast<size_t>(thread)];
  uint32_t seen = 0;
  for (;;) {
    seen = wait_for_change(s.generation, seen);
    if (s.stopping.load(std::memory_order_relaxed)) return;
    if (me.benched.load(std::memory_order_acquire) != 0) {
      me.benched.wait(1, std::memory_order_acquire);
      continue;
    }
    if (!s.enter(seen, me)) continue;
    me.inside.store(true, std::memory_order_relaxed);
    s.call(thread);
    me.inside.store(false, std::memory_order_relaxed);
    s.leave();
  }
}

void ThreadPool::run_erased(Erased fn, void* context) {
  if (inside_region) throw InternalError("a parallel region was started inside another one");
  const std::lock_guard turn(state_->turn);
  state_->fn = fn;
  state_->context = context;
  region(true);
}

void ThreadPool::ranges_erased(int64_t n, int64_t grain, ErasedRange fn, void* context) {
  if (inside_region) throw InternalError("a parallel region was started inside another one");
  State& s = *state_;
  const std::lock_guard turn(s.turn);
  s.return_from_bench(false);
  if (s.all_benched() && s.cores.empty()) {
    const RegionMark mark;
    fn(context, 0, 0, n);
    return;
  }
  s.fn = nullptr;
  s.range_fn = fn;
  s.context = context;
  s.range = n;
  s.grain = grain;
  for (int i = 0; i < n_threads_; ++i) {
    const auto [begin, end] = share(n, grain, i, n_threads_);
    s.members[static_cast<size_t>(i)].next.store(begin, std::memory_order_relaxed);
    s.members[static_cast<size_t>(i)].end = end;
  }
  region(false);
}

/// Opens the region that `state_` describes, takes part, closes it and waits for those inside.
/// `everybody`: it stays open until all workers have come.
void ThreadPool::region(bool everybody) {
  State& s = *state_;
  cpu_set_t before;
  const bool pinned =
      !s.cores.empty() && pthread_getaffinity_np(pthread_self(), sizeof(before), &before) == 0;
  if (pinned) pin_current_thread(s.cores[0]);
  const auto start = Clock::now();
  if (everybody) s.return_from_bench(true);
  s.failed.store(false, std::memory_order_relaxed);
  s.caller_cpu.store(sched_getcpu(), std::memory_order_relaxed);
  s.caller_work = 0;
  const uint32_t number = s.generation.load(std::memory_order_relaxed) + 1;
  const uint64_t region = uint64_t{number} << kRegionShift;
  const auto workers = static_cast<uint64_t>(n_threads_ - 1);
  s.gate.store(everybody ? region | kEverybody | workers : region | kOpen,
               std::memory_order_release);
  s.generation.store(number, std::memory_order_release);
  s.generation.notify_all();
  s.call(0);
  const auto done = Clock::now();
  s.gate.fetch_and(~kOpen, std::memory_order_acq_rel);
  s.wait_until_empty(start);
  if (!everybody) s.judge(start, done);
  if (pinned) pthread_setaffinity_np(pthread_self(), sizeof(before), &before);
  if (s.error) std::rethrow_exception(std::exchange(s.error, nullptr));
}

}  // namespace ts
