/// TQ1_0: ternary, five digits of base 3 in a byte, 256 codes with one scale, 54 bytes, 1.6875
/// bits per weight.
///
///   elements   0..159  e = 32*n + m        digit n of qs[m],      m = 0..31, n = 0..4
///   elements 160..239  e = 160 + 16*n + m  digit n of qs[32 + m], m = 0..15, n = 0..4
///   elements 240..255  e = 240 + 4*n + h   digit n of qh[h],      h = 0..3,  n = 0..3
///   bytes 52..53       f16 d
///
/// The coding of a byte is told in trit_bytes.h, the formulas in trit_block.h.
///
/// Worked example: elements 0, 32, 64, 96, 128 with the trits 0, 1, 2, 0, 1 are the digits of
/// qs[0]: Q = 46, byte (46*256 + 242) / 243 = 49 = 0x31.
#include "codec/trit_block.h"

namespace ts {
namespace {

using Block = TritBlock<48, 4>;
static_assert(sizeof(Block) == 54 && Block::kElems == 256);

}  // namespace

extern constexpr Codec kCodecTQ1_0{
    .id = TypeId::kTQ1_0,
    .name = "tq1_0",
    .block_elems = Block::kElems,
    .block_bytes = sizeof(Block),
    .activation = ActivationForm::kInt8Group128,
    .exactness = Exactness::kTernary,
    .group_elems = Block::kElems,
    .file_type = 36,
    .decode = Block::decode,
    .encode = Block::encode,
    .pack = Block::pack,
    .inspect = Block::inspect,
};
static_assert(well_formed(kCodecTQ1_0));

}  // namespace ts
