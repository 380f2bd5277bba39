#include "runtime/residual_file.h"

#include <system_error>

#include <fmt/format.h>

#include <tensorsharp/error.hpp>

#include "base/log.h"
#include "base/quote_text.h"
#include "base/sha256.h"
#include "format/file_kind.h"

namespace ts {
namespace {

/// More than anyone fits; bounds what a file may claim.
constexpr int64_t kMostPlanes = 16;

}  // namespace

std::shared_ptr<const GgufFile> open_residual(const GgufFile& model, const Progress& progress) {
  const std::filesystem::path path = residual_path(model.path());
  std::error_code ec;
  if (!std::filesystem::exists(path, ec)) {
    const int64_t planes = model.metadata().get_int(kPlanesKey, 1, kMostPlanes).value_or(1);
    if (planes > 1)
      log_warning(fmt::format(
          "{}: only the first of {} planes of its matrices; the others, {}, are not there: expect "
          "worse text. Fetch both files and keep their names (--no-residual says this is meant)",
          model.path().string(), planes, path.filename().string()));
    return nullptr;
  }
  auto file = GgufFile::open(path);
  const Metadata& metadata = file->metadata();
  const std::string type = metadata.get_string("general.type").value_or("");
  if (type != "residual")
    throw FormatError(fmt::format(
        "{}: general.type is {}, expected residual: the name says that it holds further "
        "planes of {}\nremove or rename it, or run without it (--no-residual)",
        path.string(), quote_text(type), model.path().filename().string()));
  const auto wanted = metadata.get_string(kResidualBaseKey);
  if (!wanted)
    throw FormatError(
        fmt::format("{}: {} is missing; the file is incomplete", path.string(), kResidualBaseKey));
  if (model.parts().size() != 1)
    throw Unsupported(fmt::format(
        "{}: residual planes of a split model are not supported; merge its parts, or run without "
        "the planes (--no-residual)",
        path.string()));
  progress("checking residual planes", 0, 0);
  const std::string found = sha256_hex(model.parts()[0]->bytes());
  if (found != *wanted)
    throw FormatError(fmt::format(
        "{}: its planes belong to another model file: {} has SHA-256 {}, expected {}\nfetch both "
        "files again, or run without the planes (--no-residual)",
        path.string(), model.path().filename().string(), found, quote_text(*wanted)));
  return file;
}

}  // namespace ts
