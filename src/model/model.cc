#include "model/model.h"

#include <string>
#include <utility>

#include <fmt/format.h>

#include <tensorsharp/error.hpp>

#include "base/quote_text.h"
#include "model/arch/registry.h"
#include "model/hadamard_contract.h"
#include "model/required_features.h"

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
  (void)read_required_features(metadata);
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

namespace {

std::unique_ptr<const Model> load(const std::shared_ptr<const GgufFile>& file, Backend* backend,
                                  VectorValues values, const Progress* progress,
                                  std::shared_ptr<const GgufFile> residual = nullptr) {
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
  TensorLoader loader(file, backend, progress, contract, values, std::move(residual));
  model->load(loader, *file, backend);
  return model;
}

}  // namespace

std::unique_ptr<const Model> load_model(std::shared_ptr<const GgufFile> file, Backend* backend,
                                        const Progress* progress,
                                        std::shared_ptr<const GgufFile> residual) {
  return load(file, backend, backend == nullptr ? VectorValues::kSkipped : VectorValues::kRead,
              progress, std::move(residual));
}

void check_model(std::shared_ptr<const GgufFile> file) {
  (void)load(file, nullptr, VectorValues::kRead, nullptr);
}

}  // namespace ts
