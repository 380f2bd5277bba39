#include "quantize/output_files.h"

#include <system_error>

#include <fmt/format.h>

#include <tensorsharp/error.hpp>

#include "base/sha256.h"
#include "format/file_kind.h"
#include "runtime/residual_file.h"

namespace ts {

bool check_sidecar(const QuantizePlan& plan, const std::filesystem::path& path, bool overwrite) {
  const std::filesystem::path sidecar = residual_path(path);
  std::error_code ec;
  if (!std::filesystem::exists(sidecar, ec)) return false;
  if (!overwrite)
    throw InvalidArgument(
        fmt::format("{}: belongs to an earlier {} and would be loaded with the new one; remove "
                    "it, or use --force to have it replaced",
                    sidecar.string(), path.filename().string()));
  return plan.max_planes() == 1;
}

OutputFiles::OutputFiles(const QuantizePlan& plan, const std::filesystem::path& path,
                         bool overwrite)
    : base_(path, overwrite, plan.alignment), path_(path) {
  const bool planes = plan.max_planes() > 1;
  const std::filesystem::path sidecar = residual_path(path);
  stale_sidecar_ = check_sidecar(plan, path, overwrite);
  base_.metadata().set_all(plan.metadata);
  for (const PlannedTensor& t : plan.tensors)
    base_.add_tensor(t.tensor.name, t.tensor.codec->id, t.tensor.shape);
  base_.begin_data();
  if (!planes) return;
  residual_path_ = sidecar;
  residual_.emplace(sidecar, overwrite);
  residual_->metadata().set_all(residual_metadata(plan));
  for (const PlannedTensor& t : plan.tensors) {
    for (int plane = 1; plane < t.n_planes(); ++plane)
      residual_->add_tensor(plane_name(t.tensor.name, plane), t.tensor.codec->id, t.tensor.shape);
  }
  residual_->begin_data();
}

void OutputFiles::write_plane(std::span<const std::byte> bytes) {
  if (!residual_) throw InternalError("a further plane, but no file for it");
  residual_->write(bytes);
}

uint64_t OutputFiles::finish() {
  uint64_t bytes = base_.finish();
  if (residual_) {
    residual_->replace(kResidualBaseKey, MetadataValue::string(sha256_file(path_)));
    bytes += residual_->finish();
  }
  if (stale_sidecar_) std::filesystem::remove(residual_path(path_));
  return bytes;
}

}  // namespace ts
