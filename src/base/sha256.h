/// SHA-256 of bytes and files (OpenSSL).
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>

namespace ts {

/// Lower-case hexadecimal digest, 64 characters.
std::string sha256_hex(std::span<const std::byte> bytes);
/// Digest of a whole file; IoError when it cannot be read.
std::string sha256_file(const std::filesystem::path& path);

}  // namespace ts
