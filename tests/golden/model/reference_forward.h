/// A second, deliberately plain computation of the supported model families in double precision:
/// one token at a time, whole attention recomputed, no code shared with the product but the file
/// reader and the codecs' reference decoders.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

namespace ts::test {

/// Logits [ids.size()][n_vocab] of the model in a GGUF file.
std::vector<double> reference_logits(const std::filesystem::path& path,
                                     std::span<const int32_t> ids);

}  // namespace ts::test
