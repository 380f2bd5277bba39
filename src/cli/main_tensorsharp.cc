#include "cli/commands/commands.h"
#include "cli/program.h"

int main(int argc, char** argv) {
  const ts::cli::Program program{
      "tensorsharp", "Runs, checks and measures ternary and other low-bit language models on CPUs.",
      ts::cli::tensorsharp_commands()};
  return ts::cli::run_program(program, argc, argv);
}
