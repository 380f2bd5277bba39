/// The files a quantization writes: the model, and beside it the sidecar of further planes.
#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>
#include <span>
#include <string>

#include "format/gguf.h"
#include "quantize/plan.h"

namespace ts {

/// A sidecar that an earlier model of the same name left behind would be loaded with a new one that
/// has none. InvalidArgument without `overwrite`; returns whether there is one to remove.
bool check_sidecar(const QuantizePlan& plan, const std::filesystem::path& path, bool overwrite);

class OutputFiles {
 public:
  /// Declares every tensor of the plan and checks that the disk has room. See check_sidecar(); a
  /// stale one is removed by finish().
  OutputFiles(const QuantizePlan& plan, const std::filesystem::path& path, bool overwrite);

  GgufWriter& base() noexcept { return base_; }
  /// Appends a whole plane (>= 1) of the tensor whose turn it is in the sidecar.
  void write_plane(std::span<const std::byte> bytes);
  /// Makes the files appear, first the model, then the sidecar with its digest. Returns their size.
  uint64_t finish();
  const std::filesystem::path& residual() const noexcept { return residual_path_; }

 private:
  GgufWriter base_;
  std::optional<GgufWriter> residual_;
  std::filesystem::path path_, residual_path_;
  bool stale_sidecar_ = false;
};

}  // namespace ts
