/// Recognises what a file really is when it is not what its name promises, for error messages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace ts {

/// A phrase that says what the bytes at the start of a file are and what to do, for instance
/// "it is a git-lfs pointer, not the data; fetch it with 'git lfs pull'"; empty when nothing is
/// recognised. `head` should hold the first 512 bytes or the whole file if it is shorter;
/// `file_bytes` is the size of the file.
std::string describe_foreign_file(std::span<const std::byte> head, uint64_t file_bytes);

/// Key of a model file that was fitted together with further planes: how many there are with its
/// own.
inline constexpr const char* kPlanesKey = "tensorsharp.planes";

/// "<stem>.residuals.gguf" beside a model file: where further planes of its matrices are.
std::filesystem::path residual_path(const std::filesystem::path& model);

}  // namespace ts
