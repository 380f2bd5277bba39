#!/usr/bin/env python3
"""Turn a llama2.c checkpoint and its tokenizer into a GGUF file.

    tools/llama2c_to_gguf.py stories260K.bin tok512.bin stories260k.gguf

Checkpoint (version 0 of llama2.c's format, little-endian): seven int32 (width, feed-forward
width, layers, heads, key/value heads, vocabulary size, context length; the vocabulary size is
negative when the output matrix is separate), then the tensors as float32, one kind after the
other, each for all layers: embedding, attention norm, q, k, v, o, feed-forward norm, gate, down,
up, final norm, two rotary tables (not needed), and the output matrix if it is separate.

Tokenizer: uint32 longest token, then for each token a float32 score, an int32 length and the bytes.
Its pieces have spaces where SentencePiece has U+2581; they get U+2581 again here.

The query and key rows of llama2.c are already in the order of interleaved rotary pairs, which is
the order GGUF's llama architecture wants, so no rows move. The result depends on the inputs alone.

Exit status: 0 done; 2 wrong usage; 3 bad input; 5 the output cannot be written.
"""

from __future__ import annotations

import argparse
import dataclasses
import math
import os
import pathlib
import struct
import sys
from collections.abc import Iterable

ALIGNMENT = 32
U32, F32, BOOL, STRING, ARRAY, I32 = 4, 6, 7, 8, 9, 5
NORMAL, UNKNOWN, CONTROL, BYTE = 1, 2, 3, 6
SPECIAL = {0: ("<unk>", UNKNOWN), 1: ("<s>", CONTROL), 2: ("</s>", CONTROL)}
FIRST_BYTE_TOKEN = 3
RMS_EPSILON = 1e-5  # llama2.c has it in the code, not in the file
ROPE_BASE = 10000.0


class BadInput(Exception):
    """An input file that is not what it should be."""


@dataclasses.dataclass(frozen=True)
class Config:
    """The header of a checkpoint."""

    d_model: int
    d_ff: int
    n_layers: int
    n_heads: int
    n_kv_heads: int
    n_vocab: int
    n_ctx: int
    tied: bool

    @property
    def head_dim(self) -> int:
        """Width of one head."""
        return self.d_model // self.n_heads


@dataclasses.dataclass(frozen=True)
class Tensor:
    """A float32 tensor; `shape` has the input width first, as in GGUF."""

    name: str
    shape: tuple[int, ...]
    data: bytes


def read_config(data: bytes, name: str) -> Config:
    """Read and check the header."""
    if len(data) < 28:
        raise BadInput(f"{name}: {len(data)} bytes, a checkpoint begins with 28 bytes of header")
    d_model, d_ff, n_layers, n_heads, n_kv_heads, n_vocab, n_ctx = struct.unpack("<7i", data[:28])
    config = Config(
        d_model, d_ff, n_layers, n_heads, n_kv_heads, abs(n_vocab), n_ctx, tied=n_vocab > 0
    )
    for field in dataclasses.fields(Config):
        value = getattr(config, field.name)
        if field.name != "tied" and not 0 < value <= 1 << 24:
            raise BadInput(f"{name}: {field.name} is {value}; is it a llama2.c checkpoint (v0)?")
    if d_model % n_heads or n_heads % n_kv_heads or config.head_dim % 2:
        raise BadInput(
            f"{name}: width {d_model}, {n_heads} heads and {n_kv_heads} key/value heads do not fit"
        )
    return config


def read_tensors(data: bytes, config: Config, name: str) -> list[Tensor]:
    """Cut the checkpoint into GGUF tensors."""
    c = config
    kv = c.n_kv_heads * c.head_dim
    per_layer = (
        ("attn_norm", (c.d_model,)),
        ("attn_q", (c.d_model, c.d_model)),
        ("attn_k", (c.d_model, kv)),
        ("attn_v", (c.d_model, kv)),
        ("attn_output", (c.d_model, c.d_model)),
        ("ffn_norm", (c.d_model,)),
        ("ffn_gate", (c.d_model, c.d_ff)),
        ("ffn_down", (c.d_ff, c.d_model)),
        ("ffn_up", (c.d_model, c.d_ff)),
    )
    layout: list[tuple[str | None, tuple[int, ...]]] = [
        ("token_embd.weight", (c.d_model, c.n_vocab))
    ]
    for kind, shape in per_layer:
        layout += [(f"blk.{i}.{kind}.weight", shape) for i in range(c.n_layers)]
    layout += [
        ("output_norm.weight", (c.d_model,)),
        (None, (c.head_dim // 2, c.n_ctx)),  # rotary table, cosines
        (None, (c.head_dim // 2, c.n_ctx)),  # rotary table, sines
    ]
    if not c.tied:
        layout.append(("output.weight", (c.d_model, c.n_vocab)))

    expected = 28 + 4 * sum(math.prod(shape) for _, shape in layout)
    if len(data) != expected:
        raise BadInput(f"{name}: {len(data)} bytes, its header asks for {expected}")
    tensors, offset = [], 28
    for tensor, shape in layout:
        end = offset + 4 * math.prod(shape)
        if tensor is not None:
            values = memoryview(data)[offset:end]
            if not all(math.isfinite(v) for (v,) in struct.iter_unpack("<f", values)):
                raise BadInput(f"{name}: {tensor} holds a value that is not finite")
            tensors.append(Tensor(tensor, shape, bytes(values)))
        offset = end
    return tensors


def read_tokenizer(data: bytes, n_vocab: int, name: str) -> list[tuple[bytes, float, int]]:
    """Return (text, score, type) of every token."""
    tokens: list[tuple[bytes, float, int]] = []
    offset = 4
    while offset < len(data):
        if offset + 8 > len(data):
            raise BadInput(f"{name}: ends inside token {len(tokens)}")
        score, length = struct.unpack_from("<fi", data, offset)
        offset += 8
        if length < 0 or offset + length > len(data):
            raise BadInput(f"{name}: token {len(tokens)} is {length} bytes long, past the end")
        piece = data[offset : offset + length]
        offset += length
        number = len(tokens)
        if number in SPECIAL:
            text, kind = SPECIAL[number][0].encode(), SPECIAL[number][1]
        elif FIRST_BYTE_TOKEN <= number < FIRST_BYTE_TOKEN + 256:
            text, kind = f"<0x{number - FIRST_BYTE_TOKEN:02X}>".encode(), BYTE
            if piece != text:
                raise BadInput(f"{name}: token {number} is {piece!r}, expected {text!r}")
        else:
            text, kind = piece.replace(b" ", "\u2581".encode()), NORMAL
        tokens.append((text, score, kind))
    if len(tokens) != n_vocab:
        raise BadInput(f"{name}: {len(tokens)} tokens, the checkpoint has {n_vocab}")
    return tokens


def gguf_string(text: str | bytes) -> bytes:
    """Encode a string with its length."""
    raw = text.encode() if isinstance(text, str) else text
    return struct.pack("<Q", len(raw)) + raw


def pair(key: str, kind: int, value: bytes) -> bytes:
    """Encode one metadata pair whose value is already encoded."""
    return gguf_string(key) + struct.pack("<I", kind) + value


def array(kind: int, items: Iterable[bytes]) -> bytes:
    """Encode the value of an array."""
    encoded = list(items)
    return struct.pack("<IQ", kind, len(encoded)) + b"".join(encoded)


def metadata(config: Config, tokens: list[tuple[bytes, float, int]], name: str) -> list[bytes]:
    """Return the encoded metadata pairs."""

    def u32(key: str, value: int) -> bytes:
        return pair(key, U32, struct.pack("<I", value))

    def f32(key: str, value: float) -> bytes:
        return pair(key, F32, struct.pack("<f", value))

    def text(key: str, value: str) -> bytes:
        return pair(key, STRING, gguf_string(value))

    def flag(key: str, value: bool) -> bytes:
        return pair(key, BOOL, struct.pack("<?", value))

    return [
        text("general.architecture", "llama"),
        text("general.type", "model"),
        text("general.name", name),
        u32("general.file_type", 0),
        u32("general.quantization_version", 2),
        u32("llama.context_length", config.n_ctx),
        u32("llama.embedding_length", config.d_model),
        u32("llama.block_count", config.n_layers),
        u32("llama.feed_forward_length", config.d_ff),
        u32("llama.attention.head_count", config.n_heads),
        u32("llama.attention.head_count_kv", config.n_kv_heads),
        f32("llama.attention.layer_norm_rms_epsilon", RMS_EPSILON),
        u32("llama.rope.dimension_count", config.head_dim),
        f32("llama.rope.freq_base", ROPE_BASE),
        u32("llama.vocab_size", config.n_vocab),
        text("tokenizer.ggml.model", "llama"),
        text("tokenizer.ggml.pre", "default"),
        pair("tokenizer.ggml.tokens", ARRAY, array(STRING, (gguf_string(t[0]) for t in tokens))),
        pair("tokenizer.ggml.scores", ARRAY, array(F32, (struct.pack("<f", t[1]) for t in tokens))),
        pair(
            "tokenizer.ggml.token_type",
            ARRAY,
            array(I32, (struct.pack("<i", t[2]) for t in tokens)),
        ),
        u32("tokenizer.ggml.bos_token_id", 1),
        u32("tokenizer.ggml.eos_token_id", 2),
        u32("tokenizer.ggml.unknown_token_id", 0),
        flag("tokenizer.ggml.add_bos_token", True),
        flag("tokenizer.ggml.add_eos_token", False),
        flag("tokenizer.ggml.add_space_prefix", True),
    ]


def pad(data: bytes) -> bytes:
    """Fill up to a multiple of the alignment."""
    return data + bytes(-len(data) % ALIGNMENT)


def gguf(pairs: list[bytes], tensors: list[Tensor]) -> bytes:
    """Put a GGUF file (version 3) together."""
    table, offset = b"", 0
    for tensor in tensors:
        n_dims = len(tensor.shape)
        table += gguf_string(tensor.name)
        table += struct.pack(f"<I{n_dims}QIQ", n_dims, *tensor.shape, 0, offset)  # type 0 = F32
        offset += len(pad(tensor.data))
    head = struct.pack("<4sIQQ", b"GGUF", 3, len(tensors), len(pairs)) + b"".join(pairs) + table
    return pad(head) + b"".join(pad(tensor.data) for tensor in tensors)


def convert(checkpoint: pathlib.Path, tokenizer: pathlib.Path, name: str) -> bytes:
    """Read both files and return the bytes of the GGUF file."""
    data = checkpoint.read_bytes()
    config = read_config(data, checkpoint.name)
    tensors = read_tensors(data, config, checkpoint.name)
    tokens = read_tokenizer(tokenizer.read_bytes(), config.n_vocab, tokenizer.name)
    return gguf(metadata(config, tokens, name), tensors)


def write_whole(path: pathlib.Path, data: bytes) -> None:
    """Make the file appear complete or not at all."""
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        with part.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("checkpoint", type=pathlib.Path)
    parser.add_argument("tokenizer", type=pathlib.Path)
    parser.add_argument("output", type=pathlib.Path)
    parser.add_argument("--name", help="general.name (default: the checkpoint's file name)")
    parser.add_argument("--force", action="store_true", help="overwrite the output")
    options = parser.parse_args(arguments)
    if options.output.exists() and not options.force:
        print(f"error: {options.output} exists; --force overwrites it", file=sys.stderr)
        return 2
    try:
        data = convert(
            options.checkpoint, options.tokenizer, options.name or options.checkpoint.stem
        )
    except (BadInput, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 3
    try:
        write_whole(options.output, data)
    except OSError as error:
        print(f"error: {error}", file=sys.stderr)
        return 5
    return 0


if __name__ == "__main__":
    sys.exit(main())
