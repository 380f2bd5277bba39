#include "cli/completion.h"

#include "cli/commands/commands.h"

namespace ts::cli {
namespace {

class CompletionCommand : public Command {
 public:
  CompletionCommand()
      : Command("completion", "Prints a script that completes commands and options in a shell.",
                "source <(tensorsharp completion bash)\n"
                "tensorsharp completion zsh > ~/.zfunc/_tensorsharp\n"
                "tensorsharp completion fish > ~/.config/fish/completions/tensorsharp.fish") {}

  void add_options(OptionParser& options) override {
    options.choice("SHELL", shell_, {"bash", "zsh", "fish"}, "bash, zsh or fish");
    options.required();
  }

  int run(Console& console) override {
    const Program program{"tensorsharp", "", tensorsharp_commands()};
    const std::string script = completion_script(program, shell_);
    if (console.json()) {
      console.json_line({{"shell", shell_}, {"script", script}});
    } else {
      console.out(script);
    }
    return kSuccess;
  }

 private:
  std::string shell_;
};

}  // namespace

std::unique_ptr<Command> make_completion_command() {
  return std::make_unique<CompletionCommand>();
}

}  // namespace ts::cli
