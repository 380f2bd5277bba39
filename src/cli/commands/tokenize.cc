#include <algorithm>

#include <fmt/format.h>

#include <tensorsharp/error.hpp>

#include "base/quote_text.h"
#include "cli/commands/commands.h"
#include "cli/input_text.h"
#include "cli/model_options.h"
#include "cli/parse_values.h"
#include "cli/text_output.h"
#include "format/gguf.h"
#include "model/gguf_tokenizer.h"

namespace ts::cli {
namespace {

class TokenizeCommand : public Command {
 public:
  TokenizeCommand()
      : Command("tokenize",
                "Shows the token ids and pieces of a text, and whether decoding gives the text "
                "back; or, with --decode, the text of ids. Reads only the file's header.",
                "tensorsharp tokenize model.gguf \"Once upon a time\"\n"
                "tensorsharp tokenize model.gguf < notes.txt\n"
                "tensorsharp tokenize model.gguf --decode \"1 403 407 261 378\"\n"
                "tensorsharp tokenize model.gguf \"Hello\" --json | jq -c .ids") {}

  void add_options(OptionParser& options) override {
    add_model_argument(options, path_);
    options.text("TEXT", text_, "", "the text, or ids with --decode (default: standard input)");
    options.flag("--decode", decode_, "TEXT is a list of token ids");
    options.text("--file,-f", file_, "FILE", "read the text from a file; - is standard input");
    options.flag("--no-bos", no_bos_, "do not add begin- and end-of-text tokens");
    options.flag("--special", special_,
                 "recognise the texts of control tokens; otherwise they are plain text");
    options.text("--force-pre", force_pre_, "NAME",
                 "use this pre-tokenizer in place of an unknown one named by the file");
  }

  void check_options() override {
    if (text_ && file_) throw InvalidArgument("give TEXT or --file, not both");
  }

  int run(Console& console) override {
    const auto file = GgufFile::open(path_);
    const auto tokenizer = Tokenizer::create(read_gguf_tokenizer(file->metadata()), force_pre_);
    const std::string text = file_   ? read_text_file(*file_)
                             : text_ ? *text_
                                     : read_standard_input();
    return decode_ ? decode(console, *tokenizer, text) : encode(console, *tokenizer, text);
  }

 private:
  int encode(Console& console, const Tokenizer& tokenizer, const std::string& text) const {
    const auto ids = tokenizer.encode(text, {.add_special = !no_bos_, .parse_special = special_});
    const auto plain = tokenizer.encode(text, {.add_special = false, .parse_special = special_});
    const bool round_trip = tokenizer.decode(plain, true) == text;
    std::vector<std::string> pieces;
    for (const TokenId id : ids)
      pieces.push_back(tokenizer.token_bytes(id, true));
    if (console.json()) {
      console.json_line({{"ids", ids},
                         {"pieces", pieces},
                         {"n_tokens", ids.size()},
                         {"bytes", text.size()},
                         {"round_trip", round_trip}});
      return kSuccess;
    }
    std::string out;
    for (size_t i = 0; i < ids.size(); ++i)
      out += fmt::format("{:>8}  {}\n", ids[i], quote_text(pieces[i], SIZE_MAX));
    console.out(out);
    console.note_format("{} tokens, {} bytes, round trip {}", ids.size(), text.size(),
                        round_trip ? "exact" : "NOT exact");
    return kSuccess;
  }

  int decode(Console& console, const Tokenizer& tokenizer, const std::string& text) const {
    const auto ids = parse_token_ids(text);
    if (!ids)
      throw InvalidArgument(fmt::format("--decode: {} is not a list of token ids such as 1,403,407",
                                        quote_text(text)));
    for (const int32_t id : *ids) {
      if (id >= tokenizer.n_vocab())
        throw InvalidArgument(fmt::format("--decode: there is no token {}; ids go from 0 to {}", id,
                                          tokenizer.n_vocab() - 1));
    }
    const std::string decoded = tokenizer.decode(*ids, true);
    if (console.json()) {
      std::vector<std::string> pieces;
      for (const TokenId id : *ids)
        pieces.push_back(tokenizer.token_bytes(id, true));
      console.json_line({{"ids", *ids}, {"pieces", pieces}, {"text", decoded}});
    } else {
      console.out(decoded + "\n");
    }
    return kSuccess;
  }

  std::string path_, force_pre_;
  std::optional<std::string> text_, file_;
  bool decode_ = false, no_bos_ = false, special_ = false;
};

}  // namespace

std::unique_ptr<Command> make_tokenize_command() {
  return std::make_unique<TokenizeCommand>();
}

}  // namespace ts::cli
