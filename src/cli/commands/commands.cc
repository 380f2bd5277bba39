#include "cli/commands/commands.h"

#include <utility>

namespace ts::cli {
namespace {

template <typename... Commands>
CommandList list(Commands... commands) {
  CommandList out;
  (out.push_back(std::move(commands)), ...);
  return out;
}

}  // namespace

CommandList tensorsharp_commands() {
  return list(make_run_command(), make_plan_command(), make_inspect_command("tensorsharp"),
              make_verify_command(), make_eval_perplexity_command(), make_eval_kl_command(),
              make_eval_choice_command(), make_eval_gsm8k_command(), make_eval_logits_command(),
              make_bench_command(), make_quantize_command(), make_convert_command(),
              make_tokenize_command(), make_completion_command());
}

CommandList ts_cli_commands() {
  return list(make_info_command(), make_inspect_command("ts-cli"));
}

}  // namespace ts::cli
