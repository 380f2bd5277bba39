/// The report of a quantization as JSON, and as a page with plots.
#pragma once

#include <filesystem>
#include <string>

#include <nlohmann/json_fwd.hpp>

#include "quantize/quantize.h"

namespace ts {

nlohmann::ordered_json quantize_report_json(const QuantizeReport& report);

/// One page of HTML with inline SVG, which needs nothing else.
std::string quantize_report_html(const QuantizeReport& report);

/// Writes the form that the name ends in: .html, else JSON. Errors: as AtomicFile.
void write_report(const QuantizeReport& report, const std::filesystem::path& path, bool overwrite);

}  // namespace ts
