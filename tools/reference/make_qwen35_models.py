#!/usr/bin/env python3
"""Make the random tiny `qwen35` models of testdata/qwen35 and their expected logits.

    /usr/bin/python3 tools/reference/make_qwen35_models.py testdata/qwen35

Every file has a trap of its own; testdata/README.md lists them. `unfolded` and the two `folded`
files are the same function: the codes of the folded ones are drawn at random, and since a block of
64 never spans two scales and sqrt(64) is a power of two, the unfolded weights are scale / 8 times
an integer of at most 64, which Q8_0 holds exactly.

The files depend on nothing but this script and NumPy's PCG64 generator.
"""

from __future__ import annotations

import argparse
import dataclasses
import pathlib
from typing import Any

import blocks
import gguf_file
import golden
import numpy as np
from gguf_file import Tensor, Value, array, boolean, f32, string, u32

from hadamard import grouped_to_tiled

GROUP = 128
N_IDS = 100  # crosses the 64-token grid of chunked evaluation
POSITIONS = [0, 1, 62, 63, 64, 99]
MERGES = ("t h", "th e", "i n", "a n", "e r")
SPECIALS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
NORMAL, CONTROL = 1, 3


@dataclasses.dataclass(frozen=True)
class Spec:
    """One model."""

    seed: int
    kind: blocks.TensorType
    d_model: int = 128
    d_ff: int = 128
    n_layers: int = 3
    interval: int = 3
    n_head: int = 4
    n_head_kv: int = 2
    head_dim: int = 64
    n_rot: int = 16
    n_k: int = 4
    n_v: int = 8
    d_state: int = 16
    block: int = 64
    explicit: bool = True
    grouped: bool = True
    tied: bool = False
    contract: bool = True
    unfold: bool = False
    optional_keys: bool = True
    mtp: bool = False

    @property
    def d_inner(self) -> int:
        """Width of all value heads together."""
        return self.n_v * self.d_state

    @property
    def d_conv(self) -> int:
        """Channels of the convolution."""
        return 2 * self.n_k * self.d_state + self.d_inner

    @property
    def widths(self) -> list[int]:
        """Input widths of rotated matrices."""
        return sorted({self.d_model, self.d_ff, self.d_inner, self.n_head * self.head_dim})


SPECS = {
    "unfolded": Spec(1, blocks.Q8_0, contract=False, unfold=True),
    "folded_ptq1_0": Spec(1, blocks.PTQ1_0),
    "folded_pq2_0": Spec(1, blocks.PQ2_0),
    "tied": Spec(2, blocks.PQ2_0, block=32, tied=True),
    "identity": Spec(3, blocks.PTQ1_0, block=128, explicit=False, grouped=False),
    "equal_heads": Spec(
        4, blocks.Q2_0, n_layers=2, interval=2, n_head=2, n_head_kv=1, n_rot=32, n_v=4, d_state=32
    ),
    "defaults": Spec(
        5,
        blocks.PTQ1_0,
        n_layers=4,
        interval=4,
        n_head=2,
        n_head_kv=2,
        n_rot=64,
        n_k=2,
        contract=False,
        optional_keys=False,
    ),
    "mtp": Spec(6, blocks.PQ2_0, n_layers=2, interval=2, mtp=True),
}


def tokens() -> list[str]:
    """Three special tokens, the 256 bytes in their printable form, a few merged pairs."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [b for b in range(256) if b not in plain]
    letters = dict.fromkeys(plain) | {b: 256 + i for i, b in enumerate(others)}
    texts = [chr(b if letters[b] is None else letters[b]) for b in range(256)]
    return [*SPECIALS, *texts, *(m.replace(" ", "") for m in MERGES)]


class Maker:
    """Draws the weights of one model."""

    def __init__(self, spec: Spec) -> None:
        self.spec = spec
        self.rng = np.random.default_rng(spec.seed)
        self.signs = {w: self.rng.choice(np.array([-1, 1]), w) for w in spec.widths}
        self.tensors: list[Tensor] = []
        self.folded: list[str] = []

    def matrix(self, name: str, d_in: int, d_out: int, role: str = "folded") -> None:
        """A ternary matrix. `role`: folded, inverse (the embedding) or unlisted."""
        spec = self.spec
        codes = self.rng.integers(-1, 2, (d_out, d_in)).astype(np.int8)
        mantissas = self.rng.integers(4, 8, (d_out, d_in // GROUP)) / 4.0
        exponent = np.round(np.log2(1.1 / np.sqrt(d_in)))
        scales = (mantissas * 2.0**exponent).astype(np.float16)
        if spec.unfold:
            codes, scales = self.unfold(name, codes, scales)
        elif role == "folded" and spec.contract:
            self.folded.append(name)
        self.tensors.append(gguf_file.packed(name, codes, scales, spec.kind))

    def unfold(
        self, name: str, codes: np.ndarray, scales: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Codes and scales of the same matrix in the ordinary basis, exactly."""
        block, d_in = self.spec.block, codes.shape[1]
        # H of the Sylvester order without its factor, from the definition.
        index = np.arange(block)
        parity = np.array([[bin(r & c).count("1") & 1 for c in index] for r in index])
        turned = codes.reshape(-1, block).astype(np.int64) @ (1 - 2 * parity)
        turned = turned.reshape(codes.shape) * self.signs[d_in]
        if name.endswith("ssm_out.weight"):
            turned = grouped_to_tiled(turned, self.spec.n_k, self.spec.n_v)
            assert scales.shape[1] == 1  # otherwise a block would mix scales
        return turned.astype(np.int8), scales / np.float16(np.sqrt(block))

    def plain(self, name: str, values: np.ndarray, kind: blocks.TensorType = blocks.F32) -> None:
        """A tensor that is not rotated."""
        self.tensors.append(gguf_file.plain(name, values, kind))

    def norm(self, name: str, width: int) -> None:
        """A norm weight around 1."""
        self.plain(name, 1.0 + 0.2 * self.rng.standard_normal(width))

    def delta_net(self, layer: str) -> None:
        """The mixer of a linear layer."""
        s, rng = self.spec, self.rng
        self.matrix(f"{layer}.attn_qkv.weight", s.d_model, s.d_conv)
        self.matrix(f"{layer}.attn_gate.weight", s.d_model, s.d_inner)
        self.plain(f"{layer}.ssm_conv1d.weight", 0.6 * rng.standard_normal((s.d_conv, 4)))
        for kind in ("alpha", "beta"):
            values = rng.standard_normal((s.n_v, s.d_model)) * s.d_model**-0.5
            self.plain(f"{layer}.ssm_{kind}.weight", values, blocks.BF16)
        self.plain(f"{layer}.ssm_dt.bias", rng.uniform(-4.0, 1.0, s.n_v))
        self.plain(f"{layer}.ssm_a", -np.exp(rng.uniform(-3.0, 1.0, s.n_v)))
        self.norm(f"{layer}.ssm_norm.weight", s.d_state)
        self.matrix(f"{layer}.ssm_out.weight", s.d_inner, s.d_model)

    def full_attention(self, layer: str, role: str) -> None:
        """The mixer of a full-attention layer."""
        s = self.spec
        width = s.n_head * s.head_dim
        self.matrix(f"{layer}.attn_q.weight", s.d_model, 2 * width, role)
        self.matrix(f"{layer}.attn_k.weight", s.d_model, s.n_head_kv * s.head_dim, role)
        self.matrix(f"{layer}.attn_v.weight", s.d_model, s.n_head_kv * s.head_dim, role)
        self.norm(f"{layer}.attn_q_norm.weight", s.head_dim)
        self.norm(f"{layer}.attn_k_norm.weight", s.head_dim)
        self.matrix(f"{layer}.attn_output.weight", width, s.d_model, role)

    def layer(self, index: int, is_full: bool, role: str = "folded") -> None:
        """A whole layer."""
        s, layer = self.spec, f"blk.{index}"
        self.norm(f"{layer}.attn_norm.weight", s.d_model)
        if is_full:
            self.full_attention(layer, role)
        else:
            self.delta_net(layer)
        self.norm(f"{layer}.post_attention_norm.weight", s.d_model)
        self.matrix(f"{layer}.ffn_gate.weight", s.d_model, s.d_ff, role)
        self.matrix(f"{layer}.ffn_up.weight", s.d_model, s.d_ff, role)
        self.matrix(f"{layer}.ffn_down.weight", s.d_ff, s.d_model, role)

    def model(self, n_vocab: int) -> None:
        """All tensors."""
        s = self.spec
        self.matrix("token_embd.weight", s.d_model, n_vocab, "inverse")
        for i in range(s.n_layers):
            self.layer(i, (i + 1) % s.interval == 0)
        if s.mtp:
            self.layer(s.n_layers, is_full=True, role="unlisted")
            nextn = f"blk.{s.n_layers}.nextn"
            values = self.rng.standard_normal((s.d_model, 2 * s.d_model)) * 0.06
            self.plain(f"{nextn}.eh_proj.weight", values, blocks.BF16)
            for kind in ("enorm", "hnorm", "shared_head_norm"):
                self.norm(f"{nextn}.{kind}.weight", s.d_model)
        self.norm("output_norm.weight", s.d_model)
        if not s.tied:
            self.matrix("output.weight", s.d_model, n_vocab)


FILE_TYPES = {blocks.Q8_0: 7, blocks.Q2_0: 41, blocks.PQ2_0: 141, blocks.PTQ1_0: 143}


def model_keys(name: str, spec: Spec) -> dict[str, Value]:
    """The keys of the architecture."""
    keys: dict[str, Value] = {
        "general.architecture": string("qwen35"),
        "general.type": string("model"),
        "general.name": string(f"random tiny qwen35 ({name})"),
        "general.file_type": u32(FILE_TYPES[spec.kind]),
        "general.quantization_version": u32(2),
        "qwen35.block_count": u32(spec.n_layers + spec.mtp),
        "qwen35.context_length": u32(1024),
        "qwen35.embedding_length": u32(spec.d_model),
        "qwen35.feed_forward_length": u32(spec.d_ff),
        "qwen35.attention.head_count": u32(spec.n_head),
        "qwen35.attention.layer_norm_rms_epsilon": f32(1e-6),
        "qwen35.rope.dimension_count": u32(spec.n_rot),
        "qwen35.ssm.conv_kernel": u32(4),
        "qwen35.ssm.state_size": u32(spec.d_state),
        "qwen35.ssm.group_count": u32(spec.n_k),
        "qwen35.ssm.time_step_rank": u32(spec.n_v),
        "qwen35.ssm.inner_size": u32(spec.d_inner),
    }
    half = spec.n_rot // 2
    third = -(-half // 3)
    if spec.optional_keys:
        keys |= {
            "qwen35.attention.head_count_kv": u32(spec.n_head_kv),
            "qwen35.attention.key_length": u32(spec.head_dim),
            "qwen35.attention.value_length": u32(spec.head_dim),
            "qwen35.rope.dimension_sections": array(
                gguf_file.I32, (third, third, half - 2 * third, 0)
            ),
            "qwen35.rope.freq_base": f32(1e7),
        }
        if not spec.mtp:
            keys["qwen35.full_attention_interval"] = u32(spec.interval)
    if spec.mtp:
        linear = [(i + 1) % spec.interval != 0 for i in range(spec.n_layers)]
        keys["qwen35.nextn_predict_layers"] = u32(1)
        keys["qwen35.attention.recurrent_layers"] = array(gguf_file.BOOL, [*linear, False])
    return keys


def contract_keys(maker: Maker) -> dict[str, Value]:
    """The keys that declare the rotation."""
    spec = maker.spec
    prefix = "prism.hadamard."
    keys: dict[str, Value] = {
        prefix + "version": u32(2 if spec.tied else 1),
        prefix + "block_size": u32(spec.block),
        prefix + "transform": string("normalized-sylvester-walsh-hadamard"),
        prefix + "axis": string("input-last-dimension"),
        prefix + "sign_mode": string("explicit" if spec.explicit else "identity"),
        prefix + "weight_names": array(gguf_file.STRING, maker.folded),
        prefix + "inverse_weight_names": array(gguf_file.STRING, ["token_embd.weight"]),
    }
    if spec.explicit:
        values: list[Any] = np.concatenate([maker.signs[w] for w in spec.widths]).tolist()
        keys[prefix + "sign_widths"] = array(gguf_file.I32, spec.widths)
        keys[prefix + "sign_values"] = array(gguf_file.I32, values)
    if spec.grouped:
        keys[prefix + "gdn_v_grouped"] = boolean(True)
    if spec.tied:
        keys[prefix + "tied_output"] = boolean(True)
    return keys


def tokenizer_keys(texts: list[str]) -> dict[str, Value]:
    """The keys of the vocabulary."""
    types = [CONTROL] * len(SPECIALS) + [NORMAL] * (len(texts) - len(SPECIALS))
    return {
        "tokenizer.ggml.model": string("gpt2"),
        "tokenizer.ggml.pre": string("qwen35"),
        "tokenizer.ggml.tokens": array(gguf_file.STRING, texts),
        "tokenizer.ggml.token_type": array(gguf_file.I32, types),
        "tokenizer.ggml.merges": array(gguf_file.STRING, MERGES),
        "tokenizer.ggml.eos_token_id": u32(2),
        "tokenizer.ggml.padding_token_id": u32(0),
        "tokenizer.ggml.add_bos_token": boolean(False),
    }


def make(name: str, spec: Spec, folder: pathlib.Path) -> None:
    """Make one model and its golden file."""
    texts = tokens()
    maker = Maker(spec)
    maker.model(len(texts))
    keys = model_keys(name, spec) | tokenizer_keys(texts)
    if spec.contract:
        keys |= contract_keys(maker)
    path = folder / f"{name}.gguf"
    gguf_file.write(path, keys, maker.tensors)
    ids = np.random.default_rng(100 + spec.seed).integers(0, len(texts), N_IDS).tolist()
    golden.write(folder / f"{name}.golden.json", golden.make(path, ids, POSITIONS))


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("output", type=pathlib.Path, help="folder for the files")
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    for name, spec in SPECS.items():
        make(name, spec, options.output)


if __name__ == "__main__":
    main()
