/// I32: two's complement, little-endian, 4 bytes. Exact in binary32 up to 2^24, rounded beyond.
///
/// Worked example: fe ff ff ff is -2.
#include "codec/plain_numbers.h"

namespace ts {

extern constexpr Codec kCodecI32{
    .id = TypeId::kI32,
    .name = "i32",
    .block_elems = 1,
    .block_bytes = 4,
    .activation = ActivationForm::kF32,
    .exactness = Exactness::kRounded,
    .group_elems = 0,
    .file_type = -1,
    .decode = decode_plain_numbers<int32_t>,
    .encode = nullptr,
    .pack = nullptr,
    .inspect = nullptr,
};
static_assert(well_formed(kCodecI32));

}  // namespace ts
