#include "model/non_finite.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <vector>

#include <fmt/format.h>

#include "codec/codec.h"

namespace ts {

std::optional<size_t> find_non_finite(std::span<const float> values) noexcept {
  // First a pass without branches, which compilers vectorise: the largest magnitude as an integer.
  uint32_t largest = 0;
  for (const float v : values)
    largest = std::max(largest, std::bit_cast<uint32_t>(v) & 0x7FFFFFFFu);
  if (largest < 0x7F800000u) return std::nullopt;
  const auto bad =
      std::find_if(values.begin(), values.end(), [](float v) { return !std::isfinite(v); });
  return static_cast<size_t>(bad - values.begin());
}

std::optional<std::string> find_non_finite_weight(const GgufFile& file, const Model& model) {
  std::vector<float> row;
  for (const std::string& name : model.tensor_names()) {
    const TensorEntry* entry = file.find(name);
    if (entry == nullptr) continue;
    const Codec& codec = require_codec(entry->type, name);
    const auto width = static_cast<size_t>(entry->shape[0]);
    const size_t row_bytes = codec.row_bytes(width);
    row.resize(width);
    for (int64_t r = 0; r < entry->shape.n_rows(); ++r) {
      codec.decode(entry->data.data() + static_cast<size_t>(r) * row_bytes, row.data(), width);
      if (const auto bad = find_non_finite(row))
        return fmt::format("tensor {} ({}) holds {} in row {}, block {}", name, codec.name,
                           row[*bad], r, *bad / codec.block_elems);
    }
  }
  return std::nullopt;
}

std::optional<std::string> find_non_finite_activation(const Model& model, Backend& backend,
                                                      std::span<const int32_t> ids,
                                                      KvType kv_type) {
  std::optional<std::string> found;
  int64_t first_position = 0;
  std::vector<float> logits(static_cast<size_t>(model.config().n_vocab));
  const ForwardProbe probe = [&](std::string_view name, Mat rows) {
    for (int64_t r = 0; r < rows.rows && !found; ++r) {
      const std::span<const float> row(rows.row(r), static_cast<size_t>(rows.cols));
      if (const auto bad = find_non_finite(row))
        found =
            fmt::format("the first result that is not finite is {} of {} (token {}, element {})",
                        row[*bad], name, first_position + r, *bad);
    }
  };
  const int64_t chunk = std::min<int64_t>(64, static_cast<int64_t>(ids.size()));
  State state(backend, model.state_layout(static_cast<int64_t>(ids.size()), kv_type));
  Workspace workspace(backend, model.workspace_layout(chunk));
  for (size_t begin = 0; begin < ids.size() && !found; begin += static_cast<size_t>(chunk)) {
    ForwardRequest request;
    request.ids = ids.subspan(begin, std::min(static_cast<size_t>(chunk), ids.size() - begin));
    request.probe = &probe;
    request.logits = logits;
    first_position = static_cast<int64_t>(begin);
    try {
      model.forward(request, state, workspace);
    } catch (const NonFiniteLogits&) {
      break;  // the probe has seen them
    }
  }
  return found;
}

}  // namespace ts
