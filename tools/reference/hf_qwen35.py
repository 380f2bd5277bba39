#!/usr/bin/env python3
"""Run a Hugging Face checkpoint of the Qwen3.5 family through the float64 forward pass.

    python3 tools/reference/hf_qwen35.py testdata/hf/qwen35

Reads config.json and the safetensors, maps names and values to those of the `qwen35` architecture,
computes the logits of every sequence of `expected/sequences.json` and compares them with
`expected/logits_N.npy`, which the `transformers` library computed in float32.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import struct
import sys
from typing import Any

import blocks
import numpy as np
import qwen35

from hadamard import Real, grouped_to_tiled

DECODERS = {"F32": blocks.decode_f32, "F16": blocks.decode_f16, "BF16": blocks.decode_bf16}
SKIPPED = ("model.visual.", "visual.", "mtp.", "model.mtp.")
TOLERANCE = 2e-4  # of the largest logit: the library computes in float32

PLAIN = {
    "mlp.gate_proj.weight": "ffn_gate.weight",
    "mlp.up_proj.weight": "ffn_up.weight",
    "mlp.down_proj.weight": "ffn_down.weight",
    "self_attn.q_proj.weight": "attn_q.weight",
    "self_attn.k_proj.weight": "attn_k.weight",
    "self_attn.v_proj.weight": "attn_v.weight",
    "self_attn.o_proj.weight": "attn_output.weight",
    "linear_attn.norm.weight": "ssm_norm.weight",
}
PLUS_ONE = {
    "input_layernorm.weight": "attn_norm.weight",
    "post_attention_layernorm.weight": "post_attention_norm.weight",
    "self_attn.q_norm.weight": "attn_q_norm.weight",
    "self_attn.k_norm.weight": "attn_k_norm.weight",
}
ROWS = {  # rows of value heads, moved to tiled order
    "linear_attn.in_proj_z.weight": "attn_gate.weight",
    "linear_attn.in_proj_a.weight": "ssm_alpha.weight",
    "linear_attn.in_proj_b.weight": "ssm_beta.weight",
    "linear_attn.dt_bias": "ssm_dt.bias",
}


def read_safetensors(path: pathlib.Path) -> dict[str, Real]:
    """Return the float tensors of a file."""
    data = path.read_bytes()
    (n_header,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + n_header])
    tensors = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        begin, end = (8 + n_header + offset for offset in entry["data_offsets"])
        size = 4 if entry["dtype"] == "F32" else 2
        raw = np.frombuffer(data[begin:end], dtype=np.uint8).reshape(-1, size)
        tensors[name] = DECODERS[entry["dtype"]](raw).reshape(entry["shape"])
    return tensors


def tile(values: Real, n_k: int, n_v: int) -> Real:
    """Move the value heads of the first dimension from grouped to tiled order."""
    return np.moveaxis(grouped_to_tiled(np.moveaxis(values, 0, -1), n_k, n_v), -1, 0)


def convert_layer_tensor(name: str, values: Real, text: dict[str, Any]) -> tuple[str, Real]:
    """Return the name within its block and the values of one tensor of a layer."""
    n_k, n_v = text["linear_num_key_heads"], text["linear_num_value_heads"]
    d_keys = 2 * n_k * text["linear_key_head_dim"]
    if name in PLAIN:
        return PLAIN[name], values
    if name in PLUS_ONE:
        return PLUS_ONE[name], values + 1.0
    if name in ROWS:
        return ROWS[name], tile(values, n_k, n_v)
    if name == "linear_attn.A_log":
        return "ssm_a", tile(-np.exp(values), n_k, n_v)
    if name == "linear_attn.in_proj_qkv.weight":
        moved = tile(values[d_keys:], n_k, n_v)
        return "attn_qkv.weight", np.concatenate((values[:d_keys], moved))
    if name == "linear_attn.conv1d.weight":
        moved = tile(values[d_keys:, 0], n_k, n_v)
        return "ssm_conv1d.weight", np.concatenate((values[:d_keys, 0], moved))
    if name == "linear_attn.out_proj.weight":
        return "ssm_out.weight", grouped_to_tiled(values, n_k, n_v)
    raise ValueError(f"no place for {name}")


def convert(folder: pathlib.Path) -> tuple[dict[str, Any], dict[str, Real]]:
    """Return metadata and weights as a `qwen35` file would hold them."""
    config = json.loads((folder / "config.json").read_text())
    text = config | config.get("text_config", {})
    rope = text["rope_parameters"]
    factor = rope.get("partial_rotary_factor", text.get("partial_rotary_factor", 0.25))
    keys = {
        "block_count": text["num_hidden_layers"],
        "embedding_length": text["hidden_size"],
        "attention.head_count": text["num_attention_heads"],
        "attention.head_count_kv": text["num_key_value_heads"],
        "attention.key_length": text["head_dim"],
        "attention.layer_norm_rms_epsilon": text["rms_norm_eps"],
        "attention.recurrent_layers": [k == "linear_attention" for k in text["layer_types"]],
        "rope.dimension_count": int(text["head_dim"] * factor),
        "rope.freq_base": float(rope["rope_theta"]),
        "ssm.conv_kernel": text["linear_conv_kernel_dim"],
        "ssm.state_size": text["linear_key_head_dim"],
        "ssm.group_count": text["linear_num_key_heads"],
        "ssm.time_step_rank": text["linear_num_value_heads"],
    }
    metadata = {"general.architecture": "qwen35"} | {f"qwen35.{k}": v for k, v in keys.items()}
    weights = {}
    for path in sorted(folder.glob("model*.safetensors")):
        for full_name, values in read_safetensors(path).items():
            name = full_name.replace("language_model.", "", 1)
            if name.startswith(SKIPPED):
                continue
            if name == "model.embed_tokens.weight":
                weights["token_embd.weight"] = values
            elif name == "model.norm.weight":
                weights["output_norm.weight"] = values + 1.0
            elif name == "lm_head.weight":
                weights["output.weight"] = values
            else:
                index, rest = name.removeprefix("model.layers.").split(".", 1)
                kind, converted = convert_layer_tensor(rest, values, text)
                weights[f"blk.{index}.{kind}"] = converted
    return metadata, weights


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("checkpoint", type=pathlib.Path)
    options = parser.parse_args()
    expected = options.checkpoint / "expected"
    model = qwen35.Model(*convert(options.checkpoint))
    failed = False
    for number, ids in enumerate(json.loads((expected / "sequences.json").read_text())):
        theirs = np.load(expected / f"logits_{number}.npy").astype(np.float64)
        ours = model.forward(ids)
        error, largest = np.abs(ours - theirs).max(), np.abs(theirs).max()
        same = float((ours.argmax(axis=1) == theirs.argmax(axis=1)).mean())
        print(
            f"sequence {number}: {len(ids)} tokens, largest difference {error:.3g} "
            f"(logits up to {largest:.3g}), same most probable token {same:.1%}"
        )
        failed |= not error < TOLERANCE * largest
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
