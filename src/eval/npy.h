/// NumPy's .npy files (format version 1.0) of little-endian f32, written piece by piece.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "base/atomic_file.h"

namespace ts {

/// The bytes before the data: magic, version, and a dictionary of type, order and shape, padded so
/// that the data starts at a multiple of 64 (NEP 1, "A Simple File Format for NumPy Arrays").
/// `shape`: outermost dimension first.
std::string npy_header_f32(std::span<const int64_t> shape);

class NpyWriter {
 public:
  /// Starts the file; it appears under its name with finish() only. Throws as AtomicFile does.
  NpyWriter(const std::filesystem::path& path, bool overwrite, std::vector<int64_t> shape);
  /// The next values in row-major order. More than the shape holds is an InternalError.
  void write(std::span<const float> values);
  /// Throws InternalError when values are missing.
  void finish();

 private:
  AtomicFile file_;
  uint64_t missing_ = 1;
};

}  // namespace ts
