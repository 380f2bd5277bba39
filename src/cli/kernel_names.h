/// Which kernel serves which weight type.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "codec/codec.h"

namespace ts::cli {

struct KernelName {
  const Codec* codec = nullptr;
  std::string isa;      ///< instruction set of its kernel; "ref" = plain code; empty = none
  bool scalar = false;  ///< plain code although this selection has vector kernels for others
};

/// All codecs, under `isa` (as --isa takes it).
std::vector<KernelName> kernel_names(const std::string& isa);
/// {"q4_1": "avx2", ...} for the matrices of a GGUF file.
nlohmann::ordered_json kernel_names_of_model(const std::string& path, const std::string& isa);

/// Where measured choices of kernels are kept; empty when there is no place for them or
/// TENSORSHARP_NO_AUTOTUNE is set to anything.
std::filesystem::path kernel_choices_file();

}  // namespace ts::cli
