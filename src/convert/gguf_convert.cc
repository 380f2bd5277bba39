#include "convert/gguf_convert.h"

#include <system_error>

#include <fmt/format.h>

#include <tensorsharp/error.hpp>

#include "base/quote_text.h"
#include "convert/output_tensor.h"
#include "format/gguf.h"

namespace ts {
namespace {

OutputTensor open_tensor(const TensorEntry& entry) {
  OutputTensor tensor;
  tensor.name = entry.name;
  tensor.sources = {entry.name};
  tensor.source_type = type_name(entry.type);
  tensor.kept = &require_codec(
      entry.type, fmt::format("{}: tensor {}", entry.file.string(), quote_text(entry.name)));
  tensor.shape = entry.shape;
  tensor.packed = entry.data;
  tensor.rows = codec_rows(*tensor.kept, entry.data, entry.shape.n_rows(), entry.shape[0]);
  return tensor;
}

bool is_number_type(const Codec& codec) {
  return codec.exactness != Exactness::kExact || codec.id == TypeId::kF32;
}

void note_residual_planes(const std::filesystem::path& input, std::vector<std::string>& notes) {
  auto sidecar = input;
  sidecar.replace_extension(".residuals.gguf");
  std::error_code ec;
  if (std::filesystem::exists(sidecar, ec))
    notes.push_back(
        fmt::format("the residual planes in {} belong to the input file and are not carried over",
                    sidecar.filename().string()));
}

}  // namespace

ConvertReport convert_gguf(const std::filesystem::path& input, const std::filesystem::path& output,
                           const ConvertOptions& options, const Progress& progress) {
  TypeChooser chooser(options);
  if (!options.force_pre.empty())
    throw InvalidArgument(
        fmt::format("{}: the pre-tokenizer can be forced only when converting a checkpoint "
                    "directory",
                    input.string()));
  const auto file = GgufFile::open(input);
  std::error_code ec;
  for (const auto& part : file->parts()) {
    if (std::filesystem::equivalent(part->path(), output, ec))
      throw InvalidArgument(fmt::format("{}: is the input; name another output", output.string()));
  }

  ConvertReport report;
  report.architecture = file->metadata().get_string("general.architecture").value_or("");
  report.notes.assign(file->notes().begin(), file->notes().end());
  note_residual_planes(input, report.notes);
  progress("read", 0, 0);
  std::vector<OutputTensor> tensors;
  for (const TensorEntry& entry : file->tensors()) {
    tensors.push_back(open_tensor(entry));
    progress("plan", 0, 0);
    if (is_number_type(*tensors.back().kept)) {
      chooser.choose(tensors.back());
    } else {
      tensors.back().codec = tensors.back().kept;  // integers and doubles are no weights
    }
  }
  chooser.check_useful(input.string());

  GgufWriter writer(output, options.overwrite, file->alignment());
  for (const auto& [key, value] : file->metadata().entries()) {
    if (!key.starts_with("split.")) writer.metadata().set(key, value);
  }
  if (chooser.requested() != nullptr) {
    if (const auto type = file_type_of(tensors)) {
      writer.metadata().set("general.file_type", MetadataValue::u32(*type));
    } else {
      writer.metadata().erase("general.file_type");
    }
  }
  for (std::string& note : chooser.notes())
    report.notes.push_back(std::move(note));
  write_gguf(writer, tensors, options, input.string(), progress, report);
  return report;
}

}  // namespace ts
