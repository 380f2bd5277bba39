#include "convert/model_source.h"

#include <system_error>

#include <fmt/format.h>

#include <tensorsharp/error.hpp>

#include "convert/gguf_convert.h"
#include "convert/hf_convert.h"

namespace ts {

SourceKind source_kind(const std::filesystem::path& input) {
  namespace fs = std::filesystem;
  std::error_code ec;
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
    return SourceKind::kCheckpoint;
  }
  if (input.extension() == ".safetensors")
    throw InvalidArgument(fmt::format(
        "{}: name the checkpoint's directory; its config.json and tokenizer are needed too",
        input.string()));
  return SourceKind::kGguf;
}

ModelSource open_model_source(const std::filesystem::path& input, const std::string& force_pre,
                              const Progress& progress) {
  if (source_kind(input) == SourceKind::kCheckpoint)
    return open_checkpoint_source(input, force_pre, progress);
  if (!force_pre.empty())
    throw InvalidArgument(fmt::format(
        "{}: the pre-tokenizer can be forced only for a checkpoint directory", input.string()));
  return open_gguf_source(input, progress);
}

void refuse_input_as_output(const ModelSource& source, const std::filesystem::path& output) {
  if (source.gguf == nullptr) return;
  std::error_code ec;
  for (const auto& part : source.gguf->parts()) {
    if (std::filesystem::equivalent(part->path(), output, ec))
      throw InvalidArgument(fmt::format("{}: is the input; name another output", output.string()));
  }
}

}  // namespace ts
