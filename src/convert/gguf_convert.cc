#include "convert/gguf_convert.h"

#include <system_error>

#include <fmt/format.h>

#include <tensorsharp/error.hpp>

#include "base/quote_text.h"
#include "convert/output_tensor.h"
#include "format/file_kind.h"
#include "format/gguf.h"
#include "model/arch/registry.h"
#include "model/hadamard_contract.h"

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
  const std::filesystem::path sidecar = residual_path(input);
  std::error_code ec;
  if (std::filesystem::exists(sidecar, ec))
    notes.push_back(
        fmt::format("the residual planes in {} belong to the input file and are not carried over",
                    sidecar.filename().string()));
}

/// What a run would refuse because it must compute more than the tensors say is refused here as
/// well: a copy would look sound. Other contents are the business of whoever runs the file.
void check_meaning(const GgufFile& file, const std::string& architecture,
                   std::vector<std::string>& notes) {
  const auto contract = HadamardContract::read(file);
  if (contract == nullptr && find_architecture(architecture) == nullptr)
    notes.push_back(fmt::format(
        "the architecture {} is not known to this version: tensors and metadata are carried over, "
        "but whether they make a model was not checked",
        quote_text(architecture)));
}

}  // namespace

ModelSource open_gguf_source(const std::filesystem::path& input, const Progress& progress) {
  ModelSource source;
  progress("read", 0, 0);
  source.gguf = GgufFile::open(input);
  source.keep_alive = source.gguf;
  const GgufFile& file = *source.gguf;
  source.architecture = file.metadata().get_string("general.architecture").value_or("");
  source.alignment = file.alignment();
  source.notes.assign(file.notes().begin(), file.notes().end());
  check_meaning(file, source.architecture, source.notes);
  note_residual_planes(input, source.notes);
  source.metadata = Metadata(input.string());
  for (const auto& [key, value] : file.metadata().entries()) {
    if (!key.starts_with("split.")) source.metadata.set(key, value);
  }
  for (const TensorEntry& entry : file.tensors())
    source.tensors.push_back(open_tensor(entry));
  return source;
}

ConvertReport convert_gguf(const std::filesystem::path& input, const std::filesystem::path& output,
                           const ConvertOptions& options, const Progress& progress) {
  TypeChooser chooser(options);
  ModelSource source = open_model_source(input, options.force_pre, progress);
  refuse_input_as_output(source, output);

  ConvertReport report;
  report.architecture = source.architecture;
  report.notes = std::move(source.notes);
  for (OutputTensor& tensor : source.tensors) {
    progress("plan", 0, 0);
    if (is_number_type(*tensor.kept)) {
      chooser.choose(tensor);
    } else {
      tensor.codec = tensor.kept;  // integers and doubles are no weights
    }
  }
  chooser.check_useful(input.string());

  GgufWriter writer(output, options.overwrite, source.alignment);
  writer.metadata().set_all(source.metadata);
  if (chooser.requested() != nullptr) {
    if (const auto type = file_type_of(source.tensors)) {
      writer.metadata().set("general.file_type", MetadataValue::u32(*type));
    } else {
      writer.metadata().erase("general.file_type");
    }
  }
  for (std::string& note : chooser.notes())
    report.notes.push_back(std::move(note));
  write_gguf(writer, source.tensors, options, input.string(), progress, report);
  return report;
}

}  // namespace ts
