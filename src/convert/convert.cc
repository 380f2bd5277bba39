#include "convert/convert.h"

#include <string>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include <tensorsharp/error.hpp>

#include "base/log.h"
#include "convert/gguf_convert.h"
#include "convert/hf_convert.h"

namespace ts {
namespace {

ConvertReport convert_any(const std::filesystem::path& input, const std::filesystem::path& output,
                          const ConvertOptions& options, const Progress& progress) {
  namespace fs = std::filesystem;
  std::error_code ec;
  if (output.extension() != ".gguf")
    throw Unsupported(fmt::format("{}: only .gguf files can be written", output.string()));
  if (fs::exists(output, ec) && !options.overwrite)
    throw InvalidArgument(
        fmt::format("{}: exists already; use --force to overwrite it", output.string()));
  if (source_kind(input) == SourceKind::kCheckpoint)
    return convert_checkpoint(input, output, options, progress);
  return convert_gguf(input, output, options, progress);
}

}  // namespace

ConvertReport convert_model(const std::filesystem::path& input, const std::filesystem::path& output,
                            const ConvertOptions& options, const Progress& progress) {
  WarningCollector warnings;
  ConvertReport report = convert_any(input, output, options, progress);
  for (std::string& line : warnings.take())
    report.notes.push_back(std::move(line));
  return report;
}

}  // namespace ts
