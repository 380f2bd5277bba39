/// F64: IEEE binary64, little-endian, 8 bytes; rounded to binary32, beyond its range to infinity.
///
/// Worked example: -2.5 is 00 00 00 00 00 00 04 c0.
#include "codec/plain_numbers.h"

namespace ts {

extern constexpr Codec kCodecF64{
    .id = TypeId::kF64,
    .name = "f64",
    .block_elems = 1,
    .block_bytes = 8,
    .activation = ActivationForm::kF32,
    .exactness = Exactness::kRounded,
    .group_elems = 0,
    .file_type = -1,
    .decode = decode_plain_numbers<double>,
    .encode = nullptr,
    .pack = nullptr,
    .inspect = nullptr,
};
static_assert(well_formed(kCodecF64));

}  // namespace ts
