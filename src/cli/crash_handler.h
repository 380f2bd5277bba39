/// Last words when the process is killed by a fault: what happened and which switches turn the
/// suspected code path off.
#pragma once

namespace ts::cli {

/// Handles SIGSEGV, SIGILL, SIGBUS and SIGFPE: prints two lines to stderr, then lets the default
/// action end the process (for SIGBUS, the sign of a mapped file that shrank, exit status 3).
void install_crash_handler() noexcept;

}  // namespace ts::cli
