"""Packed weight blocks: decoding to float64, and packing of ternary codes with their scales.

A row of a matrix is a whole number of blocks. Ternary codes here are -1, 0, +1 (and +2, which the
two-bit formats can hold); scales are binary16.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
Codes = NDArray[np.int8]
Scales = NDArray[np.float16]
Real = NDArray[np.float64]

POWERS_OF_3 = np.array([1, 3, 9, 27, 81], dtype=np.uint16)


def _scale_column(raw: Bytes) -> Real:
    """Two bytes of each block as a binary16 scale, [n_blocks, 1]."""
    return np.ascontiguousarray(raw).view("<f2").astype(np.float64)


def _scale_bytes(scales: Scales) -> Bytes:
    return np.ascontiguousarray(scales.astype("<f2")).reshape(-1, 1).view(np.uint8)


def _ptq1_0_regions() -> list[tuple[int, int, int, int]]:
    """(first element, first byte, bytes, digits) of the three regions of a PTQ1_0 block."""
    return [(0, 0, 16, 5), (80, 16, 8, 5), (120, 24, 2, 4)]


def decode_ptq1_0(blocks: Bytes) -> Real:
    """128 elements in 28 bytes: base-3 digits, digit-major, scale last."""
    values = np.empty((len(blocks), 128), dtype=np.float64)
    for first, byte, n_bytes, n_digits in _ptq1_0_regions():
        for digit in range(n_digits):
            packed = blocks[:, byte : byte + n_bytes].astype(np.uint16)
            shifted = (packed * POWERS_OF_3[digit]) & 0xFF
            at = first + digit * n_bytes
            values[:, at : at + n_bytes] = ((shifted * 3) >> 8).astype(np.float64) - 1
    return values * _scale_column(blocks[:, 26:28])


def pack_ptq1_0(codes: Codes, scales: Scales) -> Bytes:
    """Pack codes [n, 128] in {-1, 0, 1} with scales [n]."""
    if not np.isin(codes, (-1, 0, 1)).all():
        raise ValueError("PTQ1_0 holds codes -1, 0 and +1 only")
    trits = codes.reshape(-1, 128).astype(np.int32) + 1
    out = np.empty((len(trits), 28), dtype=np.uint8)
    for first, byte, n_bytes, n_digits in _ptq1_0_regions():
        number = np.zeros((len(trits), n_bytes), dtype=np.int32)
        for digit in range(5):
            number *= 3
            if digit < n_digits:
                at = first + digit * n_bytes
                number += trits[:, at : at + n_bytes]
        out[:, byte : byte + n_bytes] = (number * 256 + 242) // 243
    out[:, 26:28] = _scale_bytes(scales)
    return out


def _two_bits(packed: Bytes) -> Real:
    """Four codes in a byte, the first in the lowest bits; [n, m] -> [n, 4 m]."""
    fields = (packed[:, :, None] >> np.array([0, 2, 4, 6], dtype=np.uint8)) & 3
    return fields.reshape(len(packed), -1).astype(np.float64) - 1


def decode_two_bit(blocks: Bytes) -> Real:
    """PQ2_0 (128 elements in 34 bytes) and Q2_0 (64 in 18): scale first, codes in order."""
    return _two_bits(blocks[:, 2:]) * _scale_column(blocks[:, :2])


def _pack_two_bit(codes: Codes, scales: Scales, group: int) -> Bytes:
    fields = (codes.reshape(-1, group // 4, 4) + 1).astype(np.uint8)
    packed = fields[..., 0] | fields[..., 1] << 2 | fields[..., 2] << 4 | fields[..., 3] << 6
    return np.concatenate((_scale_bytes(scales), packed), axis=1)


def pack_pq2_0(codes: Codes, scales: Scales) -> Bytes:
    """Pack codes [n, 128] with scales [n]."""
    return _pack_two_bit(codes, scales, 128)


def pack_q2_0(codes: Codes, scales: Scales) -> Bytes:
    """Pack codes [n, 64] with scales [n]."""
    return _pack_two_bit(codes, scales, 64)


def decode_tq2_0(blocks: Bytes) -> Real:
    """256 elements in 66 bytes: two halves of 32 bytes, four bit pairs each; scale last."""
    halves = blocks[:, :64].reshape(-1, 2, 1, 32)
    shifts = np.array([0, 2, 4, 6], dtype=np.uint8).reshape(1, 1, 4, 1)
    codes = ((halves >> shifts) & 3).reshape(len(blocks), 256).astype(np.float64) - 1
    return codes * _scale_column(blocks[:, 64:66])


def pack_tq2_0(codes: Codes, scales: Scales) -> Bytes:
    """Pack codes [n, 256] with scales [n]."""
    fields = (codes.reshape(-1, 2, 4, 32) + 1).astype(np.uint8)
    packed = fields[:, :, 0] | fields[:, :, 1] << 2 | fields[:, :, 2] << 4 | fields[:, :, 3] << 6
    return np.concatenate((packed.reshape(-1, 64), _scale_bytes(scales)), axis=1)


def decode_q8_0(blocks: Bytes) -> Real:
    """32 elements in 34 bytes: scale, then signed bytes."""
    return blocks[:, 2:].view(np.int8).astype(np.float64) * _scale_column(blocks[:, :2])


def pack_q8_0(codes: Codes, scales: Scales) -> Bytes:
    """Pack codes [n, 32] with scales [n]."""
    packed = np.ascontiguousarray(codes.reshape(-1, 32).astype(np.int8)).view(np.uint8)
    return np.concatenate((_scale_bytes(scales), packed), axis=1)


def decode_bf16(blocks: Bytes) -> Real:
    """The upper half of a binary32."""
    raw = np.ascontiguousarray(blocks).view("<u2").astype(np.uint32) << 16
    return raw.view(np.float32).astype(np.float64)


def pack_bf16(values: Real) -> Bytes:
    """Round finite values to nearest, ties to even."""
    bits = np.ascontiguousarray(values.astype(np.float32)).reshape(-1).view(np.uint32)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    return rounded.astype("<u2").view(np.uint8).reshape(-1, 2)


def decode_f32(blocks: Bytes) -> Real:
    """binary32."""
    return np.ascontiguousarray(blocks).view("<f4").astype(np.float64)


def decode_f16(blocks: Bytes) -> Real:
    """binary16."""
    return np.ascontiguousarray(blocks).view("<f2").astype(np.float64)


@dataclasses.dataclass(frozen=True)
class TensorType:
    """A GGUF tensor type."""

    number: int
    name: str
    n_elements: int
    n_bytes: int
    decode: Callable[[Bytes], Real]


F32 = TensorType(0, "F32", 1, 4, decode_f32)
F16 = TensorType(1, "F16", 1, 2, decode_f16)
Q8_0 = TensorType(8, "Q8_0", 32, 34, decode_q8_0)
BF16 = TensorType(30, "BF16", 1, 2, decode_bf16)
TQ2_0 = TensorType(35, "TQ2_0", 256, 66, decode_tq2_0)
Q2_0 = TensorType(42, "Q2_0", 64, 18, decode_two_bit)
PQ2_0 = TensorType(142, "PQ2_0", 128, 34, decode_two_bit)
PTQ1_0 = TensorType(143, "PTQ1_0", 128, 28, decode_ptq1_0)

TYPES = {t.number: t for t in (F32, F16, Q8_0, BF16, TQ2_0, Q2_0, PQ2_0, PTQ1_0)}

PACKERS: dict[int, Callable[[Codes, Scales], Bytes]] = {
    Q2_0.number: pack_q2_0,
    PQ2_0.number: pack_pq2_0,
    PTQ1_0.number: pack_ptq1_0,
    TQ2_0.number: pack_tq2_0,
    Q8_0.number: pack_q8_0,
}
