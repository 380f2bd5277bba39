/// PTQ1_0: ternary, five digits of base 3 in a byte, 128 codes with one scale, 28 bytes, 1.75
/// bits per weight.
///
///   elements   0..79   e = 16*n + m        digit n of qs[m],      m = 0..15, n = 0..4
///   elements  80..119  e = 80 + 8*n + m    digit n of qs[16 + m], m = 0..7,  n = 0..4
///   elements 120..127  e = 120 + 2*n + h   digit n of qh[h],      h = 0..1,  n = 0..3
///   bytes 26..27       f16 d
///
/// The coding of a byte is told in trit_bytes.h, the formulas in trit_block.h.
///
/// Worked example: elements 0, 16, 32, 48, 64 with the trits 0, 2, 1, 0, 2 are the digits of qs[0]:
/// Q = 65, byte (65*256 + 242) / 243 = 69 = 0x45.
#include "codec/trit_block.h"

namespace ts {
namespace {

using Block = TritBlock<24, 2>;
static_assert(sizeof(Block) == 28 && Block::kElems == 128);

}  // namespace

extern constexpr Codec kCodecPTQ1_0{
    .id = TypeId::kPTQ1_0,
    .name = "ptq1_0",
    .block_elems = Block::kElems,
    .block_bytes = sizeof(Block),
    .activation = ActivationForm::kInt8Group128,
    .exactness = Exactness::kTernary,
    .group_elems = Block::kElems,
    .file_type = 143,
    .decode = Block::decode,
    .encode = Block::encode,
    .pack = Block::pack,
    .inspect = Block::inspect,
};
static_assert(well_formed(kCodecPTQ1_0));

}  // namespace ts
