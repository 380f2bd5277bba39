#include "cli/kernel_names.h"

#include <algorithm>
#include <cstdlib>

#include "cli/user_directories.h"
#include "format/gguf.h"
#include "kernels/kernels.h"

namespace ts::cli {

std::vector<KernelName> kernel_names(const std::string& isa) {
  const Kernels& kernels = select_kernels(isa);
  const bool plain = std::string_view(kernels.table.isa) == "ref";
  std::vector<KernelName> names;
  for (const Codec* codec : all_codecs()) {
    KernelName name;
    name.codec = codec;
    if (const int format = int_format_of(codec->id); format >= 0) {
      name.isa = kernels.int_format_isa[format];
    } else if (const int float_format = float_format_of(codec->id); float_format >= 0) {
      name.isa = kernels.float_format_isa[float_format];
    }
    name.scalar = name.isa == "ref" && !plain;
    names.push_back(std::move(name));
  }
  return names;
}

nlohmann::ordered_json kernel_names_of_model(const std::string& path, const std::string& isa) {
  const auto file = GgufFile::open(path);
  nlohmann::ordered_json out = nlohmann::ordered_json::object();
  for (const KernelName& name : kernel_names(isa)) {
    const bool used =
        std::any_of(file->tensors().begin(), file->tensors().end(), [&](const TensorEntry& tensor) {
          return tensor.type == name.codec->id && tensor.shape.n_dims > 1;
        });
    if (used) out[std::string(name.codec->name)] = name.isa;
  }
  return out;
}

std::filesystem::path kernel_choices_file() {
  const auto directory = cache_directory();
  if (directory.empty() || std::getenv("TENSORSHARP_NO_AUTOTUNE") != nullptr) return {};
  return directory / "kernels.json";
}

}  // namespace ts::cli
