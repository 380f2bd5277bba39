/// I16: two's complement, little-endian, 2 bytes. Exact in binary32.
///
/// Worked example: fe ff is -2.
#include "codec/plain_numbers.h"

namespace ts {

extern constexpr Codec kCodecI16{
    .id = TypeId::kI16,
    .name = "i16",
    .block_elems = 1,
    .block_bytes = 2,
    .activation = ActivationForm::kF32,
    .exactness = Exactness::kRounded,
    .group_elems = 0,
    .file_type = -1,
    .decode = decode_plain_numbers<int16_t>,
    .encode = nullptr,
    .pack = nullptr,
    .inspect = nullptr,
};
static_assert(well_formed(kCodecI16));

}  // namespace ts
