#include "convert/convert.h"

#include <system_error>

#include <fmt/format.h>

#include <tensorsharp/error.hpp>

#include "convert/gguf_convert.h"
#include "convert/hf_convert.h"

namespace ts {

ConvertReport convert_model(const std::filesystem::path& input, const std::filesystem::path& output,
                            const ConvertOptions& options, const Progress& progress) {
  namespace fs = std::filesystem;
  std::error_code ec;
  if (output.extension() != ".gguf")
    throw Unsupported(fmt::format("{}: only .gguf files can be written", output.string()));
  if (fs::exists(output, ec) && !options.overwrite)
    throw InvalidArgument(
        fmt::format("{}: exists already; use --force to overwrite it", output.string()));
  if (!fs::exists(input, ec))
    throw IoError(fmt::format("{}: no such file or directory", input.string()));
  if (fs::is_directory(input, ec)) {
    if (fs::exists(input / "weights.ts", ec))
      throw Unsupported(
          fmt::format("{}: this version does not read the weights.ts container", input.string()));
    if (!fs::exists(input / "config.json", ec))
      throw FormatError(
          fmt::format("{}: no config.json in this directory; expected a Hugging Face checkpoint "
                      "(config.json, safetensors, tokenizer.json)",
                      input.string()));
    return convert_checkpoint(input, output, options, progress);
  }
  if (input.extension() == ".safetensors")
    throw InvalidArgument(fmt::format(
        "{}: name the checkpoint's directory; its config.json and tokenizer are needed too",
        input.string()));
  return convert_gguf(input, output, options, progress);
}

}  // namespace ts
