/// Shell completion scripts, made from the same option declarations as the parser.
#pragma once

#include <string>

#include "cli/program.h"

namespace ts::cli {

/// `shell`: "bash", "zsh" or "fish".
std::string completion_script(const Program& program, const std::string& shell);

}  // namespace ts::cli
