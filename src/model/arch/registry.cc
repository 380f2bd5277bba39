#include "model/arch/registry.h"

#include <array>

namespace ts {
namespace {

constexpr std::array kArchitectures = {
    Architecture{"llama", create_llama},   Architecture{"qwen2", create_qwen2},
    Architecture{"qwen3", create_qwen3},   Architecture{"gemma3", create_gemma3},
    Architecture{"qwen35", create_qwen35},
};

}  // namespace

std::span<const Architecture> all_architectures() noexcept {
  return kArchitectures;
}

const Architecture* find_architecture(std::string_view name) noexcept {
  for (const Architecture& a : kArchitectures) {
    if (a.name == name) return &a;
  }
  return nullptr;
}

}  // namespace ts
