"""Read and write GGUF files (version 3, little-endian), with the standard library and NumPy."""

from __future__ import annotations

import dataclasses
import math
import os
import pathlib
import struct
from collections.abc import Iterable
from typing import Any

import blocks
import numpy as np

ALIGNMENT = 32
U8, I8, U16, I16, U32, I32, FLOAT32, BOOL, STRING, ARRAY, U64, I64, FLOAT64 = range(13)
SCALARS = {
    U8: "<B",
    I8: "<b",
    U16: "<H",
    I16: "<h",
    U32: "<I",
    I32: "<i",
    FLOAT32: "<f",
    BOOL: "<?",
    U64: "<Q",
    I64: "<q",
    FLOAT64: "<d",
}


@dataclasses.dataclass(frozen=True)
class Value:
    """A typed metadata value; `element` is the element type of an array."""

    kind: int
    value: Any
    element: int | None = None


def u32(value: int) -> Value:
    """An unsigned integer."""
    return Value(U32, value)


def f32(value: float) -> Value:
    """A float."""
    return Value(FLOAT32, value)


def string(value: str) -> Value:
    """A string."""
    return Value(STRING, value)


def boolean(value: bool) -> Value:
    """A bool."""
    return Value(BOOL, value)


def array(element: int, values: Iterable[Any]) -> Value:
    """An array."""
    return Value(ARRAY, list(values), element)


@dataclasses.dataclass(frozen=True)
class Tensor:
    """A tensor; `shape` has the input width first."""

    name: str
    shape: tuple[int, ...]
    kind: blocks.TensorType
    data: bytes

    def decode(self) -> blocks.Real:
        """Return float64 values, the outermost dimension first."""
        raw = np.frombuffer(self.data, dtype=np.uint8).reshape(-1, self.kind.n_bytes)
        return self.kind.decode(raw).reshape(self.shape[::-1])


def plain(name: str, values: np.ndarray, kind: blocks.TensorType = blocks.F32) -> Tensor:
    """Make a tensor of type F32, F16 or BF16."""
    if kind is blocks.BF16:
        data = blocks.pack_bf16(values).tobytes()
    else:
        data = values.astype("<f4" if kind is blocks.F32 else "<f2").tobytes()
    return Tensor(name, values.shape[::-1], kind, data)


def packed(name: str, codes: np.ndarray, scales: np.ndarray, kind: blocks.TensorType) -> Tensor:
    """Make a tensor from codes [rows, width] and binary16 scales [rows, width / group].

    A group of the codes may span several blocks of the type (they then share its scale).
    """
    rows, width = codes.shape
    per_block = width // kind.n_elements
    repeat, left_over = divmod(per_block, scales.shape[1])
    if left_over or width % kind.n_elements:
        raise ValueError(f"{name}: rows of {width} do not fit blocks of {kind.name}")
    spread = np.repeat(scales, repeat, axis=1)
    data = blocks.PACKERS[kind.number](
        codes.reshape(rows * per_block, kind.n_elements), spread.reshape(-1)
    )
    return Tensor(name, (width, rows), kind, data.tobytes())


def _string(value: str) -> bytes:
    raw = value.encode("utf-8", "surrogateescape")
    return struct.pack("<Q", len(raw)) + raw


def _value(kind: int, value: Any) -> bytes:
    return _string(value) if kind == STRING else struct.pack(SCALARS[kind], value)


def write(path: pathlib.Path, metadata: dict[str, Value], tensors: list[Tensor]) -> None:
    """Write a file; what was there before stays until the new one is whole."""
    head = bytearray(b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(metadata)))
    for key, item in metadata.items():
        head += _string(key) + struct.pack("<I", item.kind)
        if item.kind == ARRAY:
            assert item.element is not None
            head += struct.pack("<IQ", item.element, len(item.value))
            head += b"".join(_value(item.element, v) for v in item.value)
        else:
            head += _value(item.kind, item.value)
    offset = 0
    for tensor in tensors:
        n_blocks, left_over = divmod(math.prod(tensor.shape), tensor.kind.n_elements)
        if left_over or len(tensor.data) != n_blocks * tensor.kind.n_bytes:
            raise ValueError(f"{tensor.name}: {len(tensor.data)} bytes for {tensor.shape}")
        head += _string(tensor.name) + struct.pack("<I", len(tensor.shape))
        head += struct.pack(f"<{len(tensor.shape)}Q", *tensor.shape)
        head += struct.pack("<IQ", tensor.kind.number, offset)
        offset += len(tensor.data) + -len(tensor.data) % ALIGNMENT
    part = path.with_name(path.name + ".part")
    with part.open("wb") as file:
        file.write(head + bytes(-len(head) % ALIGNMENT))
        for tensor in tensors:
            file.write(tensor.data + bytes(-len(tensor.data) % ALIGNMENT))
    os.replace(part, path)


class _Cursor:
    """Takes values from the front of a file."""

    def __init__(self, data: bytes, name: str) -> None:
        self.data, self.name, self.at = data, name, 0

    def take(self, n_bytes: int) -> bytes:
        if n_bytes > len(self.data) - self.at:
            raise ValueError(f"{self.name}: {n_bytes} bytes are missing at {self.at}")
        self.at += n_bytes
        return self.data[self.at - n_bytes : self.at]

    def unpack(self, form: str) -> Any:
        values = struct.unpack(form, self.take(struct.calcsize(form)))
        return values[0] if len(values) == 1 else values

    def text(self) -> str:
        return self.take(self.unpack("<Q")).decode("utf-8", "surrogateescape")

    def value(self, kind: int) -> Any:
        return self.text() if kind == STRING else self.unpack(SCALARS[kind])


def read(path: pathlib.Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Return metadata and tensors of a file."""
    cursor = _Cursor(path.read_bytes(), path.name)
    if cursor.take(4) != b"GGUF" or cursor.unpack("<I") not in (2, 3):
        raise ValueError(f"{path.name}: not a GGUF file of version 2 or 3")
    n_tensors, n_keys = cursor.unpack("<QQ")
    metadata: dict[str, Any] = {}
    for _ in range(n_keys):
        key, kind = cursor.text(), cursor.unpack("<I")
        if key in metadata:
            raise ValueError(f"{path.name}: key {key} occurs twice")
        if kind == ARRAY:
            element, count = cursor.unpack("<IQ")
            metadata[key] = [cursor.value(element) for _ in range(count)]
        else:
            metadata[key] = cursor.value(kind)
    table = []
    for _ in range(n_tensors):
        name, n_dims = cursor.text(), cursor.unpack("<I")
        shape = struct.unpack(f"<{n_dims}Q", cursor.take(8 * n_dims))
        table.append((name, shape, *cursor.unpack("<IQ")))
    alignment = metadata.get("general.alignment", ALIGNMENT)
    start = cursor.at + -cursor.at % alignment
    tensors: dict[str, Tensor] = {}
    for name, shape, number, offset in table:
        kind = blocks.TYPES.get(number)
        if kind is None:
            raise ValueError(f"{path.name}: {name} has type {number}, which is not read here")
        n_bytes = math.prod(shape) // kind.n_elements * kind.n_bytes
        cursor.at = start + offset
        tensors[name] = Tensor(name, shape, kind, cursor.take(n_bytes))
    return metadata, tensors
