#include "quantize/rotation_choice.h"

#include <algorithm>
#include <bit>

#include <fmt/format.h>

#include "hadamard/transform.h"
#include "model/synthetic/random_bits.h"

namespace ts {

int64_t automatic_block(const std::vector<RotationCandidate>& candidates) noexcept {
  int64_t block = 0;
  for (const RotationCandidate& candidate : candidates) {
    const auto width = static_cast<uint64_t>(candidate.width);
    const int64_t fits = std::min(int64_t{1} << std::countr_zero(width | (uint64_t{1} << 62)),
                                  kLargestAutomaticBlock);
    if (fits < kSmallestAutomaticBlock) continue;
    block = block == 0 ? fits : std::min(block, fits);
  }
  return block;
}

std::vector<int8_t> random_signs(uint64_t seed, int64_t width) {
  RandomBits bits(seed_of(seed, fmt::format("signs {}", width)));
  std::vector<int8_t> signs(static_cast<size_t>(width));
  for (int8_t& sign : signs)
    sign = (bits.next() & 1) != 0 ? 1 : -1;
  return signs;
}

std::shared_ptr<const Rotation> RotationSet::rotation(const std::string& name, int64_t width,
                                                      bool grouped) {
  require_block(width, block(), name);
  auto& made = made_[{width, grouped}];
  if (made) return made;
  auto& signs = declaration_.signs[width];
  if (signs.empty()) {
    const auto own = seeds_.find(width);
    signs = random_signs(own == seeds_.end() ? seed_ : own->second, width);
  }
  std::optional<GroupedHeads> heads;
  if (grouped)
    heads = GroupedHeads{heads_->n_key_heads, heads_->n_value_heads / heads_->n_key_heads,
                         width / heads_->n_value_heads};
  made = std::make_shared<const Rotation>(width, block(), signs, heads);
  return made;
}

std::shared_ptr<const Rotation> RotationSet::add_input(const std::string& name, int64_t width) {
  const bool is_out = name.find(".ssm_out.") != std::string::npos;
  const bool grouped = is_out && heads_ && heads_->n_value_heads != heads_->n_key_heads;
  auto made = rotation(name, width, grouped);
  declaration_.grouped = declaration_.grouped || grouped;
  declaration_.inputs.push_back(name);
  return made;
}

std::shared_ptr<const Rotation> RotationSet::add_embedding(int64_t width, bool tied) {
  auto made = rotation("token_embd.weight", width, false);
  declaration_.embedding = true;
  declaration_.tied = tied;
  return made;
}

void erase_rotation_keys(Metadata& metadata) {
  std::vector<std::string> keys;
  for (const auto& [key, value] : metadata.entries()) {
    if (key.starts_with("prism.hadamard.") || key.starts_with("tensorsharp.hadamard."))
      keys.push_back(key);
  }
  for (const std::string& key : keys)
    metadata.erase(key);
}

}  // namespace ts
