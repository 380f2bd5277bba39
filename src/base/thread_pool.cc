#include "base/thread_pool.h"

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
          fmt::format("cores: this process may not run on CPU {}; see `taskset -p $$`", core));
  }
}

}  // namespace

struct ThreadPool::State {
  std::vector<int> cores;
  std::vector<std::thread> threads;
  std::mutex turn;  ///< held by the caller whose region runs

  alignas(64) std::atomic<uint32_t> generation{0};  ///< one more per region
  alignas(64) std::atomic<int32_t> running{0};      ///< workers not yet done with the region
  alignas(64) std::atomic<bool> stopping{false};
  // Written by the caller before `generation` changes, read by workers after.
  Erased fn = nullptr;
  void* context = nullptr;
  std::mutex error_mutex;
  std::exception_ptr error;

  void call(int thread, int n_threads) noexcept {
    inside_region = true;
    try {
      fn(context, thread, n_threads);
    } catch (...) {
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
  state_ = std::make_unique<State>();
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
  for (auto& thread : state_->threads)
    thread.join();
}

void ThreadPool::worker(int thread) {
  State& s = *state_;
  if (!s.cores.empty()) pin_current_thread(s.cores[static_cast<size_t>(thread) % s.cores.size()]);
  uint32_t seen = 0;
  for (;;) {
    seen = wait_for_change(s.generation, seen);
    if (s.stopping.load(std::memory_order_relaxed)) return;
    s.call(thread, n_threads_);
    if (s.running.fetch_sub(1, std::memory_order_acq_rel) == 1) s.running.notify_one();
  }
}

void ThreadPool::run_erased(Erased fn, void* context) {
  if (inside_region) throw InternalError("a parallel region was started inside another one");
  State& s = *state_;
  const std::lock_guard turn(s.turn);
  cpu_set_t before;
  const bool pinned =
      !s.cores.empty() && pthread_getaffinity_np(pthread_self(), sizeof(before), &before) == 0;
  if (pinned) pin_current_thread(s.cores[0]);
  s.fn = fn;
  s.context = context;
  s.running.store(n_threads_ - 1, std::memory_order_relaxed);
  s.generation.fetch_add(1, std::memory_order_release);
  s.generation.notify_all();
  s.call(0, n_threads_);
  for (int32_t left = s.running.load(std::memory_order_acquire); left != 0;)
    left = wait_for_change(s.running, left);
  if (pinned) pthread_setaffinity_np(pthread_self(), sizeof(before), &before);
  if (s.error) std::rethrow_exception(std::exchange(s.error, nullptr));
}

}  // namespace ts
