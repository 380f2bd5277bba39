/// Where the tensors of one GGUF part lie, and which layout type 42 has in it. Internal to
/// src/format.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "format/gguf_header.h"
#include "format/tensor_entry.h"

namespace ts {

/// Checks every tensor of `header` against the part's bytes and against the others, and appends
/// the entries in file order. Tensors of an unknown type have no size, so only their start is
/// checked. `notes` receives remarks for people.
///
/// Type 42 has two layouts: 64 weights in 18 bytes (the official one) and 128 in 34 (older ternary
/// files, the same layout as PQ2_0). Which one a file holds is decided by evidence alone: the one
/// under which the tensors, packed with the file's alignment, come to lie exactly where the table
/// says, or, when nothing follows the only such tensor, the one that ends where the file ends.
///
/// Errors: FormatError (cut off, overlapping, misaligned, shape and type at odds, or type 42 in
/// neither layout), Unsupported (type 42 in both, or in a third layout that some tools write).
void place_gguf_tensors(const GgufHeader& header, std::span<const std::byte> bytes,
                        const std::filesystem::path& file, const std::string& name,
                        std::vector<TensorEntry>& entries, std::vector<std::string>& notes);

}  // namespace ts
