/// Ctrl-C and termination requests. The first one asks the work to stop at the next safe point;
/// a second one ends the process at once.
#pragma once

#include <atomic>

#include "base/progress.h"

namespace ts::cli {

/// Installs the handlers for SIGINT, SIGTERM and SIGHUP and makes writes to closed pipes, and
/// beyond the file size limit, return an error instead of killing the process.
void install_signal_handlers() noexcept;

/// True after the first interrupt.
const std::atomic<bool>& interrupt_flag() noexcept;
const CancelToken& interrupt_token() noexcept;

/// True after SIGTERM or SIGHUP: the program is to end, not only its present work.
bool termination_requested() noexcept;

/// A descriptor that becomes readable with the first interrupt, whichever thread took the signal:
/// who waits for input polls it too. -1 when the system gave none.
int interrupt_event() noexcept;

/// Forgets an interrupt (but no request to end) and arms the handler again (the chat goes on after
/// a stopped answer).
void rearm_interrupt() noexcept;

}  // namespace ts::cli
