#include "cli/crash_handler.h"

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <string_view>

#include <unistd.h>

namespace ts::cli {
namespace {

// Only async-signal-safe calls below.
void say(std::string_view text) noexcept {
  while (!text.empty()) {
    const ssize_t n = ::write(STDERR_FILENO, text.data(), text.size());
    if (n <= 0) return;
    text.remove_prefix(static_cast<size_t>(n));
  }
}

std::atomic_flag g_reported = ATOMIC_FLAG_INIT;

void on_fault(int signal) {
  // Several threads may fault at once: one speaks, the others wait for it to end the process.
  if (g_reported.test_and_set()) {
    while (true)
      pause();
  }
  if (signal == SIGBUS) {
    say("\ntensorsharp: error: a memory-mapped file became shorter or unreadable while in use "
        "(SIGBUS)\n  Do not change or replace a model file while a program uses it; run `verify` "
        "on it.\n");
    _exit(3);
  }
  say("\ntensorsharp: crashed (");
  say(signal == SIGILL   ? "SIGILL: this CPU does not know an instruction"
      : signal == SIGFPE ? "SIGFPE"
                         : "SIGSEGV");
  say(")\n  This is a defect of the program; please report it with the command line and the output "
      "of `ts-cli info`.\n  To get by, choose another code path: --isa ref (or "
      "TENSORSHARP_ISA=ref).\n");
  // With the default action back, returning repeats the fault and ends the process with a core dump
  // where those are on; raise() covers signals sent from outside.
  struct sigaction standard = {};
  standard.sa_handler = SIG_DFL;
  sigaction(signal, &standard, nullptr);
  raise(signal);
}

}  // namespace

void install_crash_handler() noexcept {
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  struct sigaction action = {};
  action.sa_handler = on_fault;
  sigemptyset(&action.sa_mask);
  action.sa_flags = SA_NODEFER;
  for (const int signal : {SIGSEGV, SIGILL, SIGBUS, SIGFPE})
    sigaction(signal, &action, nullptr);
#endif
}

}  // namespace ts::cli
