/// I8: one two's complement byte. Exact in binary32.
///
/// Worked example: the byte fe is -2.
#include "codec/plain_numbers.h"

namespace ts {

extern constexpr Codec kCodecI8{
    .id = TypeId::kI8,
    .name = "i8",
    .block_elems = 1,
    .block_bytes = 1,
    .activation = ActivationForm::kF32,
    .exactness = Exactness::kRounded,
    .group_elems = 0,
    .file_type = -1,
    .decode = decode_plain_numbers<int8_t>,
    .encode = nullptr,
    .pack = nullptr,
    .inspect = nullptr,
};
static_assert(well_formed(kCodecI8));

}  // namespace ts
