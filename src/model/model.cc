#include "model/model.h"

#include <string>
#include <utility>

#include <fmt/format.h>

#include <tensorsharp/error.hpp>

#include "base/log.h"
#include "base/quote_text.h"
#include "codec/codec.h"
#include "model/arch/registry.h"
#include "model/hadamard_contract.h"

namespace ts {
namespace {

std::string supported_names() {
  std::string names;
  for (const Architecture& a : all_architectures()) {
    if (!names.empty()) names += ", ";
    names += a.name;
  }
  return names;
}

/// Refuses files that are not models, and models whose weights must not be used as they stand.
void check_kind(const Metadata& metadata) {
  const std::string type = metadata.get_string("general.type").value_or("model");
  if (type != "model")
    throw Unsupported(
        fmt::format("{}: general.type is {}: this is not a model by itself; give the "
                    "model file it belongs to",
                    metadata.source(), quote_text(type)));
  if (const MetadataValue* needs = metadata.find("tensorsharp.requires"); needs != nullptr) {
    std::vector<std::string> features;
    if (const auto* text = std::get_if<std::string>(&needs->value))
      features = {*text};
    else if (const std::vector<std::string>* list = metadata.get_strings("tensorsharp.requires"))
      features = *list;
    for (const std::string& feature : features) {
      if (feature == kRequiresOutputRotation) continue;
      throw Unsupported(
          fmt::format("{}: tensorsharp.requires names {}, which this version does not have; use a "
                      "newer version",
                      metadata.source(), quote_text(feature)));
    }
  }
}

const Architecture& require_architecture(const Metadata& metadata, std::string& name) {
  const auto found = metadata.get_string("general.architecture");
  if (!found)
    throw FormatError(fmt::format("{}: general.architecture is missing; expected one of {}",
                                  metadata.source(), supported_names()));
  name = *found;
  if (const Architecture* a = find_architecture(name)) return *a;
  if (name == "clip" || name == "mmproj")
    throw Unsupported(
        fmt::format("{}: this is an image encoder (architecture {}), not a language "
                    "model; give the model file it belongs to",
                    metadata.source(), quote_text(name)));
  if (name == "qwen35moe" || name == "qwen3next")
    throw Unsupported(
        fmt::format("{}: architecture {}: models of this family with mixtures of experts are not "
                    "supported; use a dense one (architecture qwen35)",
                    metadata.source(), quote_text(name)));
  throw Unsupported(fmt::format("{}: architecture {} is not supported; supported are {}",
                                metadata.source(), quote_text(name), supported_names()));
}

/// Matrices of the types made for rotated weights, in a file that does not say they are rotated.
void warn_if_rotation_unstated(const GgufFile& file) {
  for (const TensorEntry& t : file.tensors()) {
    if (t.type != TypeId::kPQ2_0 && t.type != TypeId::kPTQ1_0) continue;
    log_warning(fmt::format("{}: {} weights without prism.hadamard.* keys: taken as not rotated",
                            file.path().string(), type_name(t.type)));
    return;
  }
}

}  // namespace

StateLayout Model::state_layout(int64_t capacity, KvType kv_type) const {
  StateLayout layout;
  layout.kv_type = kv_type;
  const bool hybrid = config().recurrent.n_v_heads > 0;
  for (const LayerShape& layer : config().layers) {
    layout.attention.push_back(
        {capacity, layer.recurrent ? 0 : layer.n_kv_heads, config().head_dim});
    if (hybrid) layout.recurrent.push_back(layer.recurrent ? config().recurrent : RecurrentShape{});
  }
  return layout;
}

std::unique_ptr<const Model> load_model(std::shared_ptr<const GgufFile> file, Backend* backend,
                                        const Progress* progress) {
  const Metadata& metadata = file->metadata();
  check_kind(metadata);
  std::string name;
  const Architecture& architecture = require_architecture(metadata, name);
  const TensorEntry* embedding = file->find("token_embd.weight");
  if (embedding == nullptr)
    throw FormatError(fmt::format("{}: tensor token_embd.weight is missing; the file is incomplete",
                                  file->path().string()));
  const auto contract = HadamardContract::read(*file);
  const ConfigReader reader(metadata, name);
  auto model = architecture.create(reader, embedding->shape[1]);
  TensorLoader loader(file, backend, progress, contract);
  model->load(loader, *file, backend);
  if (backend != nullptr && contract == nullptr) warn_if_rotation_unstated(*file);
  return model;
}

}  // namespace ts
