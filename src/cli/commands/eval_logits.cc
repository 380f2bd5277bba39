#include <fmt/format.h>

#include <tensorsharp/engine.hpp>

#include "base/quote_text.h"
#include "cli/commands/commands.h"
#include "cli/input_text.h"
#include "cli/interrupt.h"
#include "cli/model_options.h"
#include "cli/parse_values.h"
#include "eval/logits_source.h"
#include "eval/npy.h"

namespace ts::cli {
namespace {

class EvalLogitsCommand : public Command {
 public:
  EvalLogitsCommand()
      : Command(
            "eval logits",
            "Writes the model's logits for a list of token ids as a NumPy file: float32 "
            "[n_tokens, n_vocab], or only the last position as [1, n_vocab].",
            "tensorsharp eval logits model.gguf --tokens 1,403,407 --out logits.npy\n"
            "tensorsharp eval logits model.gguf --tokens @ids.txt --all --exact --out all.npy") {}

  void add_options(OptionParser& options) override {
    options.text("--tokens", tokens_, "IDS", "token ids, e.g. 1,2,3; @FILE reads them from a file");
    options.required();
    options.text("--out,-o", out_, "FILE.npy", "the file to write");
    options.required();
    options.flag("--all", all_, "the logits of every position, not of the last alone");
    options.flag("--force", force_, "replace an existing file");
    model_.add(options, "as many as there are token ids");
  }

  int run(Console& console) override {
    const std::string text = tokens_.starts_with('@') ? read_text_file(tokens_.substr(1)) : tokens_;
    const auto ids = parse_token_ids(text);
    if (!ids || ids->empty())
      throw InvalidArgument(fmt::format("--tokens: {} is not a list of token ids such as 1,403,407",
                                        quote_text(tokens_)));
    LoadOptions options = model_.load_options();
    // Just as much context as the tokens need, so that memory is not wasted.
    if (!model_.context) options.context = static_cast<int64_t>(ids->size());
    const auto engine = model_.load(console, options);
    refuse_input_as_output("--out", out_);
    SessionLogits source(engine, &interrupt_token());
    const auto n = static_cast<int64_t>(ids->size());
    for (const int32_t id : *ids) {
      if (id >= source.n_vocab())
        throw InvalidArgument(fmt::format("--tokens: there is no token {}; ids go from 0 to {}", id,
                                          source.n_vocab() - 1));
    }
    const int64_t rows = all_ ? n : 1;
    NpyWriter writer(out_, force_, {rows, source.n_vocab()});
    const Progress progress = console.progress();
    source.run(*ids, static_cast<size_t>(n - rows), static_cast<size_t>(n),
               [&](size_t position, std::span<const float> logits) {
                 progress("logits", position, static_cast<uint64_t>(n));
                 writer.write(logits);
               });
    writer.finish();
    if (console.json()) {
      console.json_line({{"output", out_},
                         {"n_tokens", n},
                         {"shape", {rows, source.n_vocab()}},
                         {"isa", engine->info().isa}});
    } else {
      console.print("{}: float32 [{}, {}]\n", out_, rows, source.n_vocab());
    }
    return kSuccess;
  }

 private:
  ModelOptions model_;
  std::string tokens_, out_;
  bool all_ = false, force_ = false;
};

}  // namespace

std::unique_ptr<Command> make_eval_logits_command() {
  return std::make_unique<EvalLogitsCommand>();
}

}  // namespace ts::cli
