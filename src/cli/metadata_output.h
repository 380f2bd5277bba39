/// Metadata values as JSON and as one line of text.
#pragma once

#include <string>

#include <nlohmann/json.hpp>

#include "format/metadata.h"

namespace ts::cli {

/// Arrays longer than `max_elems` become {"type", "length", "first"}. Bytes that are not UTF-8 are
/// replaced when the JSON is written.
nlohmann::ordered_json metadata_to_json(const MetadataValue& value, size_t max_elems);
/// Strings are quoted and cut after `max_bytes`.
std::string metadata_to_text(const MetadataValue& value, size_t max_elems, size_t max_bytes);

}  // namespace ts::cli
