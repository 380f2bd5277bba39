/// Any text as config.json: settings are read and written as GGUF metadata, or refused by an error
/// of ours.
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include <tensorsharp/error.hpp>

#include "convert/hf_config.h"
#include "convert/hf_family.h"
#include "convert/hf_rope.h"
#include "convert/hf_weights.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    const auto config = ts::HfConfig::parse(
        std::string_view(reinterpret_cast<const char*>(data), size), "config.json");
    const ts::HfFamily& family = ts::require_family(config);
    ts::read_hf_quantization(config);
    const ts::HfSizes sizes = ts::read_hf_sizes(config, family);
    ts::Metadata metadata;
    std::vector<std::string> notes;
    ts::write_hf_metadata(config, family, sizes, metadata, notes);
    const ts::HfRope rope = ts::read_hf_rope(config, "full_attention", family.default_rope_base);
    if (rope.type == "llama3") ts::llama3_rope_factors(config, rope, sizes.head_dim);
    ts::is_tied(config, family);
  } catch (const ts::InternalError&) {
    throw;
  } catch (const ts::Error&) {
  }
  return 0;
}
