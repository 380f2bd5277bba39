#include "cli/commands/commands.h"
#include "cli/program.h"

int main(int argc, char** argv) {
  const ts::cli::Program program{"ts-cli", "Looks at the machine and at model files.",
                                 ts::cli::ts_cli_commands()};
  return ts::cli::run_program(program, argc, argv);
}
