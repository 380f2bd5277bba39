"""Makes testdata/codec/reference_blocks.txt with the `gguf` Python package (MIT).

Lines, fields separated by one space:
  x HEX                 256 float32 (little-endian), the input of the encode lines
  decode TYPE HEX SHA   random blocks and the SHA-256 of the float32 they decode to
  encode TYPE HEX       what the package encodes x to
The decode lines hold any bytes, non-canonical ones too; their scales are finite.

Usage: python tools/make_codec_golden.py > testdata/codec/reference_blocks.txt
"""

import hashlib

import gguf
import numpy as np
from gguf import GGMLQuantizationType as T
from gguf import quants

N_BLOCKS = 4
# Type -> byte offsets of its float16 fields.
HALF_FIELDS = {
    T.F16: [0],
    T.BF16: [],
    T.Q4_0: [0],
    T.Q4_1: [0, 2],
    T.Q5_0: [0],
    T.Q5_1: [0, 2],
    T.Q8_0: [0],
    T.Q2_K: [80, 82],
    T.Q3_K: [108],
    T.Q4_K: [0, 2],
    T.Q5_K: [0, 2],
    T.Q6_K: [208],
    T.TQ1_0: [52],
    T.TQ2_0: [64],
}
ENCODED = [T.F16, T.BF16, T.Q4_0, T.Q4_1, T.Q5_0, T.Q5_1, T.Q8_0, T.TQ1_0, T.TQ2_0]


def random_blocks(rng, kind):
    block_bytes = gguf.GGML_QUANT_SIZES[kind][1]
    raw = rng.integers(0, 256, (N_BLOCKS, block_bytes), dtype=np.uint8)
    for offset in HALF_FIELDS[kind]:
        halves = (rng.standard_normal(N_BLOCKS) * 0.05).astype("<f2")
        raw[:, offset : offset + 2] = halves.view(np.uint8).reshape(N_BLOCKS, 2)
    if kind == T.BF16:
        raw[:, 1] = 0x3C  # finite values
    return raw


def main():
    rng = np.random.default_rng(20)
    x = (rng.standard_normal(256) * 0.02).astype("<f4")
    print("x", x.tobytes().hex())
    for kind in HALF_FIELDS:
        raw = random_blocks(rng, kind)
        values = quants.dequantize(raw.reshape(1, -1), kind).astype("<f4")
        digest = hashlib.sha256(values.tobytes()).hexdigest()
        print("decode", kind.name.lower(), raw.tobytes().hex(), digest)
    for kind in ENCODED:
        packed = np.ascontiguousarray(quants.quantize(x.reshape(1, -1), kind))
        print("encode", kind.name.lower(), packed.tobytes().hex())


if __name__ == "__main__":
    main()
