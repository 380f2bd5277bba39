/// The commands, one per file.
#pragma once

#include <memory>

#include "cli/command.h"

namespace ts::cli {

std::unique_ptr<Command> make_run_command();
std::unique_ptr<Command> make_plan_command();
std::unique_ptr<Command> make_inspect_command(const std::string& program);
std::unique_ptr<Command> make_verify_command();
std::unique_ptr<Command> make_tokenize_command();
std::unique_ptr<Command> make_bench_command();
std::unique_ptr<Command> make_eval_perplexity_command();
std::unique_ptr<Command> make_eval_kl_command();
std::unique_ptr<Command> make_eval_choice_command();
std::unique_ptr<Command> make_eval_gsm8k_command();
std::unique_ptr<Command> make_eval_logits_command();
std::unique_ptr<Command> make_convert_command();
std::unique_ptr<Command> make_quantize_command();
std::unique_ptr<Command> make_completion_command();
std::unique_ptr<Command> make_info_command();

/// The commands of `tensorsharp` and of `ts-cli`.
CommandList tensorsharp_commands();
CommandList ts_cli_commands();

}  // namespace ts::cli
