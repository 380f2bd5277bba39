#include "codec/named_types.h"

namespace ts {
namespace {

constexpr std::string_view kRemoved =
    "a format withdrawn by its authors; convert the model again from its source checkpoint";
constexpr std::string_view kCodebook =
    "a codebook format this version does not decode; use the same model in a K format of similar "
    "size, such as Q2_K, Q3_K or Q4_K";
constexpr std::string_view kActivations =
    "a format for intermediate results, not for weights; convert the model again to Q8_0";
constexpr std::string_view kMicroscaled =
    "a microscaled 4-bit float format this version does not decode; convert the model to Q4_K or "
    "Q8_0";

constexpr NamedType kNamedTypes[] = {
    {TypeId{4}, "q4_2", kRemoved},
    {TypeId{5}, "q4_3", kRemoved},
    {TypeId{9}, "q8_1", kActivations},
    {TypeId{15}, "q8_k", kActivations},
    {TypeId{16}, "iq2_xxs", kCodebook},
    {TypeId{17}, "iq2_xs", kCodebook},
    {TypeId{18}, "iq3_xxs", kCodebook},
    {TypeId{19}, "iq1_s", kCodebook},
    {TypeId{20}, "iq4_nl", kCodebook},
    {TypeId{21}, "iq3_s", kCodebook},
    {TypeId{22}, "iq2_s", kCodebook},
    {TypeId{23}, "iq4_xs", kCodebook},
    {TypeId{29}, "iq1_m", kCodebook},
    {TypeId{31}, "q4_0_4_4", kRemoved},
    {TypeId{32}, "q4_0_4_8", kRemoved},
    {TypeId{33}, "q4_0_8_8", kRemoved},
    {TypeId{36}, "i2_s",
     "the ternary format of the BitNet fork, whose one scale lies outside the blocks; re-encode "
     "the "
     "model as TQ1_0 or TQ2_0 from its safetensors checkpoint"},
    {TypeId{37}, "iq4_nl_4_8", kRemoved},
    {TypeId{38}, "iq4_nl_8_8", kRemoved},
    {TypeId{39}, "mxfp4", kMicroscaled},
    {TypeId{40}, "nvfp4", kMicroscaled},
};

}  // namespace

const NamedType* find_named_type(TypeId id) noexcept {
  for (const NamedType& type : kNamedTypes) {
    if (type.id == id) return &type;
  }
  return nullptr;
}

}  // namespace ts
