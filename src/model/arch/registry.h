/// The model families this version computes, one file each in this folder.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "model/config.h"
#include "model/decoder.h"

namespace ts {

struct Architecture {
  std::string_view name;  ///< general.architecture
  /// Reads the hyper-parameters. `n_vocab` is the number of rows of the embedding.
  std::unique_ptr<DecoderModel> (*create)(const ConfigReader& reader, int64_t n_vocab);
};

std::span<const Architecture> all_architectures() noexcept;
/// Null when unknown.
const Architecture* find_architecture(std::string_view name) noexcept;

std::unique_ptr<DecoderModel> create_llama(const ConfigReader& reader, int64_t n_vocab);
std::unique_ptr<DecoderModel> create_qwen2(const ConfigReader& reader, int64_t n_vocab);
std::unique_ptr<DecoderModel> create_qwen3(const ConfigReader& reader, int64_t n_vocab);
std::unique_ptr<DecoderModel> create_qwen35(const ConfigReader& reader, int64_t n_vocab);
std::unique_ptr<DecoderModel> create_gemma3(const ConfigReader& reader, int64_t n_vocab);

}  // namespace ts
