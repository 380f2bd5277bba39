#include "convert/hf_convert.h"

#include <cmath>
#include <initializer_list>
#include <set>
#include <string_view>
#include <system_error>

#include <fmt/format.h>

#include <tensorsharp/error.hpp>

#include "base/json.h"
#include "base/mapped_file.h"
#include "convert/hf_family.h"
#include "convert/hf_rope.h"
#include "convert/hf_tensors.h"
#include "convert/tokenizer_check.h"
#include "convert/tokenizer_metadata.h"
#include "text/hf_tokenizer.h"

namespace ts {
namespace {

/// Recommended sampling settings, where the checkpoint has any.
void write_sampling(const std::filesystem::path& directory, Metadata& metadata) {
  const auto path = directory / "generation_config.json";
  std::error_code ec;
  if (!std::filesystem::exists(path, ec)) return;
  const auto file = MappedFile::open(path, {.name = "JSON file of a checkpoint"});
  const auto bytes = file->bytes();
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const nlohmann::json values = parse_json_limited(text, path.string());
  const auto number = [&](const char* key) -> const nlohmann::json* {
    const nlohmann::json* value = member(values, key);
    if (value == nullptr) return nullptr;
    if (!value->is_number() || !std::isfinite(value->get<double>()))
      throw FormatError(fmt::format("{}: {}: found {}, expected a number", path.string(), key,
                                    show_json(*value)));
    return value;
  };
  const std::pair<const char*, const char*> floats[] = {
      {"temperature", "temp"}, {"top_p", "top_p"}, {"min_p", "min_p"}};
  for (const auto& [from, to] : floats) {
    if (const auto* value = number(from))
      metadata.set(fmt::format("general.sampling.{}", to), MetadataValue::f32(value->get<float>()));
  }
  if (const auto* value = number("top_k")) {
    const double top_k = value->get<double>();
    if (top_k != std::floor(top_k) || std::abs(top_k) > 1e9)
      throw FormatError(fmt::format("{}: top_k: found {}, expected an integer", path.string(),
                                    show_json(*value)));
    metadata.set("general.sampling.top_k", MetadataValue::i32(static_cast<int32_t>(top_k)));
  }
}

/// A setting that promises biases must come with them: without, every layer would compute something
/// else.
void check_biases(const HfConfig& config, const HfFamily& family,
                  const std::vector<OutputTensor>& tensors) {
  std::set<std::string_view> names;
  for (const OutputTensor& tensor : tensors)
    names.insert(tensor.name);
  const auto check = [&](const char* key, std::initializer_list<const char*> matrices) {
    const auto stated = config.get_bool(key);
    if (!stated) return;
    for (const OutputTensor& tensor : tensors) {
      for (const char* matrix : matrices) {
        const std::string ending = fmt::format(".{}.weight", matrix);
        if (!tensor.name.ends_with(ending)) continue;
        const std::string bias = tensor.name.substr(0, tensor.name.size() - ending.size()) +
                                 fmt::format(".{}.bias", matrix);
        if (names.contains(bias) == *stated) continue;
        config.fail(key, fmt::format("{}, but the checkpoint has {}bias for {}", *stated,
                                     *stated ? "no " : "a ", tensor.name));
      }
    }
  };
  // The biases of qwen2 are not a matter of settings.
  if (family.architecture == "qwen2")
    (void)config.get_bool("attention_bias");
  else
    check("attention_bias", {"attn_q", "attn_k", "attn_v", "attn_output"});
  check("mlp_bias", {"ffn_gate", "ffn_up", "ffn_down"});
}

std::string directory_name(const std::filesystem::path& directory) {
  std::error_code ec;
  const auto whole = std::filesystem::canonical(directory, ec);
  return (ec ? directory : whole).filename().string();
}

}  // namespace

ModelSource open_checkpoint_source(const std::filesystem::path& input, const std::string& force_pre,
                                   const Progress& progress) {
  const HfConfig config = HfConfig::read(input);
  const HfFamily& family = require_family(config);
  const HfQuantization quantization = read_hf_quantization(config);
  HfSizes sizes = read_hf_sizes(config, family);
  const std::shared_ptr<const Safetensors> file = Safetensors::open(input);

  ModelSource source;
  source.keep_alive = file;
  source.architecture = family.architecture;
  progress("read", 0, 0);
  HfTensors mapped = map_hf_tensors(*file, config, family, quantization, sizes, source.notes);
  source.tensors = std::move(mapped.tensors);
  source.skipped = std::move(mapped.skipped);
  check_biases(config, family, source.tensors);
  const HfRope rope = read_hf_rope(config, "full_attention", family.default_rope_base);
  if (rope.type == "llama3") {
    OutputTensor factors;
    factors.name = "rope_freqs.weight";
    factors.source_type = "computed";
    factors.kept = &require_codec(TypeId::kF32, "f32");
    factors.shape = Shape{sizes.head_dim / 2};
    factors.rows = value_rows(llama3_rope_factors(config, rope, sizes.head_dim));
    source.tensors.push_back(std::move(factors));
  }

  source.metadata = Metadata(input.string());
  Metadata& metadata = source.metadata;
  metadata.set("general.architecture", MetadataValue::string(source.architecture));
  metadata.set("general.type", MetadataValue::string("model"));
  metadata.set("general.name", MetadataValue::string(directory_name(input)));
  write_hf_metadata(config, family, sizes, metadata, source.notes);
  write_sampling(input, metadata);
  HfTokenizerOptions tokenizer;
  tokenizer.architecture = config.model_class();
  tokenizer.n_vocab = sizes.n_vocab;
  tokenizer.force_pre = force_pre;
  TokenizerData data = read_hf_tokenizer(input, tokenizer);
  check_tokenizer(data, source.notes);
  write_tokenizer_metadata(data, metadata);
  return source;
}

ConvertReport convert_checkpoint(const std::filesystem::path& input,
                                 const std::filesystem::path& output, const ConvertOptions& options,
                                 const Progress& progress) {
  TypeChooser chooser(options);
  ModelSource source = open_checkpoint_source(input, options.force_pre, progress);
  ConvertReport report;
  report.architecture = source.architecture;
  report.skipped = std::move(source.skipped);
  report.notes = std::move(source.notes);

  GgufWriter writer(output, options.overwrite);
  Metadata& metadata = writer.metadata();
  metadata.set_all(source.metadata);
  for (OutputTensor& tensor : source.tensors) {
    progress("plan", 0, 0);
    chooser.choose(tensor);
  }
  chooser.check_useful(input.string());
  if (const auto type = file_type_of(source.tensors))
    metadata.set("general.file_type", MetadataValue::u32(*type));
  metadata.set("general.quantization_version", MetadataValue::u32(2));
  for (std::string& note : chooser.notes())
    report.notes.push_back(std::move(note));
  write_gguf(writer, source.tensors, options, input.string(), progress, report);
  return report;
}

}  // namespace ts
