/// PQ2_0: ternary, 128 2-bit codes in element order after one scale, 34 bytes, 2.125 bits per
/// weight. Layout, formulas and a worked example: two_bit_sequential.h.
#include "codec/two_bit_sequential.h"

namespace ts {
namespace {

using Block = TwoBitSequentialBlock<128>;
static_assert(sizeof(Block) == 34);

}  // namespace

extern constexpr Codec kCodecPQ2_0{
    .id = TypeId::kPQ2_0,
    .name = "pq2_0",
    .block_elems = Block::kElems,
    .block_bytes = sizeof(Block),
    .activation = ActivationForm::kInt8Group128,
    .exactness = Exactness::kTernary,
    .group_elems = Block::kElems,
    .file_type = 141,
    .decode = Block::decode,
    .encode = Block::encode,
    .pack = Block::pack,
    .inspect = Block::inspect,
};
static_assert(well_formed(kCodecPQ2_0));

}  // namespace ts
