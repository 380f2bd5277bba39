/// Q2_0: ternary, 64 2-bit codes in element order after one scale, 18 bytes, 2.25 bits per weight.
/// Older files carry groups of 128 under the same type number; those bytes are PQ2_0 blocks, and
/// the reader of the container, which can tell the two apart, maps them to that codec. Layout,
/// formulas and a worked example: two_bit_sequential.h.
#include "codec/two_bit_sequential.h"

namespace ts {
namespace {

using Block = TwoBitSequentialBlock<64>;
static_assert(sizeof(Block) == 18);

}  // namespace

extern constexpr Codec kCodecQ2_0{
    .id = TypeId::kQ2_0,
    .name = "q2_0",
    .block_elems = Block::kElems,
    .block_bytes = sizeof(Block),
    .activation = ActivationForm::kInt8Group64,
    .exactness = Exactness::kTernary,
    .group_elems = Block::kElems,
    .file_type = 41,
    .decode = Block::decode,
    .encode = Block::encode,
    .pack = Block::pack,
    .inspect = Block::inspect,
};
static_assert(well_formed(kCodecQ2_0));

}  // namespace ts
