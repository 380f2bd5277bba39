#include "cli/interrupt.h"

#include <cerrno>
#include <csignal>
#include <cstdint>

#include <sys/eventfd.h>
#include <unistd.h>

namespace ts::cli {
namespace {

std::atomic<bool> g_interrupted{false};
CancelToken g_token;
int g_event = -1;
static_assert(std::atomic<bool>::is_always_lock_free, "the handler may only touch lock-free data");

std::atomic<bool> g_terminated{false};

void on_interrupt(int signal) {
  if (signal != SIGINT) g_terminated.store(true, std::memory_order_relaxed);
  g_interrupted.store(true, std::memory_order_relaxed);
  g_token.cancel();
  const int kept = errno;
  const uint64_t one = 1;
  if (g_event >= 0) static_cast<void>(!write(g_event, &one, sizeof(one)));
  errno = kept;
}

void arm(int signal) noexcept {
  struct sigaction action = {};
  action.sa_handler = on_interrupt;
  sigemptyset(&action.sa_mask);
  // One shot, so that a second signal kills; no restart, so that a blocked read returns.
  action.sa_flags = SA_RESETHAND;
  sigaction(signal, &action, nullptr);
}

}  // namespace

void install_signal_handlers() noexcept {
  if (g_event < 0) g_event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  // A parent that ignores interrupts (nohup, background jobs) wants that kept.
  struct sigaction current = {};
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    if (sigaction(signal, nullptr, &current) == 0 && current.sa_handler == SIG_IGN) continue;
    arm(signal);
  }
  struct sigaction ignore = {};
  ignore.sa_handler = SIG_IGN;
  sigemptyset(&ignore.sa_mask);
  sigaction(SIGPIPE, &ignore, nullptr);
  sigaction(SIGXFSZ, &ignore, nullptr);  // writes beyond the limit then fail with EFBIG
}

const std::atomic<bool>& interrupt_flag() noexcept {
  return g_interrupted;
}

const CancelToken& interrupt_token() noexcept {
  return g_token;
}

bool termination_requested() noexcept {
  return g_terminated.load(std::memory_order_relaxed);
}

int interrupt_event() noexcept {
  return g_event;
}

void rearm_interrupt() noexcept {
  if (termination_requested()) return;
  uint64_t count = 0;
  if (g_event >= 0) static_cast<void>(!read(g_event, &count, sizeof(count)));
  g_interrupted.store(false, std::memory_order_relaxed);
  g_token.reset();
  arm(SIGINT);
}

}  // namespace ts::cli
