#!/usr/bin/env python3
r"""Write the trained tiny model as GGUF files, with what is expected of them.

    python3 tools/train_tiny/export.py RUN testdata/qwen35 \
        --held-out testdata/stories260k/tinystories_40.txt

Reads `checkpoint.pt`, `tokenizer.json` and `log.jsonl` of a run of `train.py` and writes

* `tiny_trained.ptq1_0.gguf` and `tiny_trained.pq2_0.gguf`: the same codes and scales in two packs,
* `tiny_trained.log.jsonl`: the log of the run,
* `tiny_trained.golden.json`: logits of a held-out text, token ids of others, greedy continuations
  and the held-out loss, computed from the exported file by the float64 forward pass of
  `tools/reference`.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import shutil
import sys
from typing import Any

import corpus
import numpy as np
import tokenizers
import torch
from torch import Tensor

from model import Attention, Config, DeltaNet, Rotated, TinyModel, ternary_parts

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "reference"))

import blocks
import gguf_file
import golden
import qwen35
from gguf_file import Value, array, boolean, f32, string, u32

from hadamard import grouped_to_tiled

NAME = "tiny_trained"
PACKS = {"ptq1_0": (blocks.PTQ1_0, 143), "pq2_0": (blocks.PQ2_0, 141)}
NORMAL, CONTROL = 1, 3
N_GOLDEN_IDS = 100
POSITIONS = [0, 1, 63, 64, 99]
PROMPTS = (
    "Once upon a time",
    "One day, a little girl named Lily",
    "<|im_start|>user\nTell me a story.<|im_end|>\n<|im_start|>assistant\n",
)
N_GREEDY = 64
N_DOCUMENTS = 10


class Exporter:
    """Collects the tensors of one file."""

    def __init__(self, model: TinyModel, kind: blocks.TensorType) -> None:
        self.c = model.c
        self.kind = kind
        self.tensors: list[gguf_file.Tensor] = []
        self.folded: list[str] = []
        self.ternary("token_embd.weight", model.embedding, folded=False)
        for index, layer in enumerate(model.layers):
            prefix = f"blk.{index}"
            self.plain(f"{prefix}.attn_norm.weight", layer.attn_norm.weight)
            if isinstance(layer.mixer, Attention):
                self.attention(prefix, layer.mixer)
            else:
                self.delta_net(prefix, layer.mixer)
            self.plain(f"{prefix}.post_attention_norm.weight", layer.ffn_norm.weight)
            self.ternary(f"{prefix}.ffn_gate.weight", layer.gate)
            self.ternary(f"{prefix}.ffn_up.weight", layer.up)
            self.ternary(f"{prefix}.ffn_down.weight", layer.down)
        self.plain("output_norm.weight", model.norm.weight)
        self.ternary("output.weight", model.head)

    def tiled(self, values: np.ndarray) -> np.ndarray:
        """Move value heads along the first dimension to the order of the file."""
        last = np.moveaxis(values, 0, -1)
        return np.moveaxis(grouped_to_tiled(last, self.c.n_k, self.c.n_v), -1, 0)

    def tiled_tail(self, values: np.ndarray) -> np.ndarray:
        """Move the value heads that follow the rows of q and k."""
        n = 2 * self.c.d_key
        return np.concatenate((values[:n], self.tiled(values[n:])))

    def plain(
        self, name: str, values: Tensor | np.ndarray, kind: blocks.TensorType = blocks.F32
    ) -> None:
        """Add a tensor that is not ternary."""
        if isinstance(values, Tensor):
            values = values.detach().numpy()
        self.tensors.append(gguf_file.plain(name, values, kind))

    def ternary(self, name: str, matrix: Rotated, rows: Any = None, folded: bool = True) -> None:
        """Add a ternary matrix; `rows` reorders its output rows."""
        parts = ternary_parts(matrix.latent.detach())
        codes = parts[0].numpy().astype(np.int8).reshape(matrix.latent.shape)
        scales = parts[1].numpy().astype(np.float16)[..., 0]
        if rows is not None:
            codes, scales = rows(codes), rows(scales)
        self.tensors.append(gguf_file.packed(name, codes, scales, self.kind))
        if folded:
            self.folded.append(name)

    def attention(self, prefix: str, mixer: Attention) -> None:
        """Add a full-attention mixer."""
        self.ternary(f"{prefix}.attn_q.weight", mixer.q)
        self.ternary(f"{prefix}.attn_k.weight", mixer.k)
        self.ternary(f"{prefix}.attn_v.weight", mixer.v)
        self.plain(f"{prefix}.attn_q_norm.weight", mixer.q_norm.weight)
        self.plain(f"{prefix}.attn_k_norm.weight", mixer.k_norm.weight)
        self.ternary(f"{prefix}.attn_output.weight", mixer.out)

    def delta_net(self, prefix: str, mixer: DeltaNet) -> None:
        """Add a linear mixer. The columns of ssm_out stay in grouped order."""
        self.ternary(f"{prefix}.attn_qkv.weight", mixer.qkv, self.tiled_tail)
        self.ternary(f"{prefix}.attn_gate.weight", mixer.z, self.tiled)
        self.plain(f"{prefix}.ssm_conv1d.weight", self.tiled_tail(mixer.conv.detach().numpy()))
        for name, values in (("alpha", mixer.alpha), ("beta", mixer.beta)):
            tiled = self.tiled(values.detach().numpy())
            self.plain(f"{prefix}.ssm_{name}.weight", tiled, blocks.BF16)
        self.plain(f"{prefix}.ssm_dt.bias", self.tiled(mixer.dt_bias.detach().numpy()))
        self.plain(f"{prefix}.ssm_a", self.tiled(-mixer.a_log.detach().exp().numpy()))
        self.plain(f"{prefix}.ssm_norm.weight", mixer.norm.weight)
        self.ternary(f"{prefix}.ssm_out.weight", mixer.out)


def model_keys(c: Config, file_type: int) -> dict[str, Value]:
    """Return the general keys and those of the architecture."""
    half = c.n_rot // 2
    third = -(-half // 3)
    return {
        "general.architecture": string("qwen35"),
        "general.type": string("model"),
        "general.name": string("Tiny ternary stories"),
        "general.description": string(
            f"Ternary hybrid in a rotated basis, by tools/train_tiny. {corpus.LICENCE_LINE}"
        ),
        "general.file_type": u32(file_type),
        "general.quantization_version": u32(2),
        "qwen35.block_count": u32(c.n_layers),
        "qwen35.context_length": u32(c.n_ctx),
        "qwen35.embedding_length": u32(c.d_model),
        "qwen35.feed_forward_length": u32(c.d_ff),
        "qwen35.attention.head_count": u32(c.n_head),
        "qwen35.attention.head_count_kv": u32(c.n_head_kv),
        "qwen35.attention.key_length": u32(c.head_dim),
        "qwen35.attention.value_length": u32(c.head_dim),
        "qwen35.attention.layer_norm_rms_epsilon": f32(c.norm_eps),
        "qwen35.rope.dimension_count": u32(c.n_rot),
        "qwen35.rope.dimension_sections": array(gguf_file.I32, (third, third, half - 2 * third, 0)),
        "qwen35.rope.freq_base": f32(c.rope_base),
        "qwen35.full_attention_interval": u32(c.interval),
        "qwen35.ssm.conv_kernel": u32(c.conv_kernel),
        "qwen35.ssm.state_size": u32(c.d_state),
        "qwen35.ssm.group_count": u32(c.n_k),
        "qwen35.ssm.time_step_rank": u32(c.n_v),
        "qwen35.ssm.inner_size": u32(c.d_inner),
    }


def contract_keys(model: TinyModel, folded: list[str]) -> dict[str, Value]:
    """Return the keys that declare the rotation."""
    rotated = {m.latent.shape[1]: m for m in model.modules() if isinstance(m, Rotated)}
    widths = sorted(rotated)
    values = [int(v) for width in widths for v in rotated[width].signs]
    keys = {
        "version": u32(1),
        "block_size": u32(model.c.block),
        "transform": string("normalized-sylvester-walsh-hadamard"),
        "axis": string("input-last-dimension"),
        "sign_mode": string("explicit"),
        "sign_widths": array(gguf_file.I32, widths),
        "sign_values": array(gguf_file.I32, values),
        "weight_names": array(gguf_file.STRING, folded),
        "inverse_weight_names": array(gguf_file.STRING, ["token_embd.weight"]),
        "gdn_v_grouped": boolean(True),
    }
    return {f"prism.hadamard.{key}": value for key, value in keys.items()}


def tokenizer_keys(tokenizer: tokenizers.Tokenizer) -> dict[str, Value]:
    """Return the keys of the vocabulary and the chat template."""
    state = json.loads(tokenizer.to_str())["model"]
    texts = sorted(state["vocab"], key=state["vocab"].get)
    merges = [m if isinstance(m, str) else " ".join(m) for m in state["merges"]]
    types = [CONTROL if t in corpus.SPECIAL_TOKENS else NORMAL for t in texts]
    return {
        "tokenizer.ggml.model": string("gpt2"),
        "tokenizer.ggml.pre": string("qwen35"),
        "tokenizer.ggml.tokens": array(gguf_file.STRING, texts),
        "tokenizer.ggml.token_type": array(gguf_file.I32, types),
        "tokenizer.ggml.merges": array(gguf_file.STRING, merges),
        "tokenizer.ggml.eos_token_id": u32(corpus.TURN_END),
        "tokenizer.ggml.padding_token_id": u32(corpus.END_OF_TEXT),
        "tokenizer.ggml.add_bos_token": boolean(False),
        "tokenizer.chat_template": string(corpus.CHAT_TEMPLATE),
    }


def log_probabilities(logits: np.ndarray, targets: list[int]) -> np.ndarray:
    """Return the log-probability of each target."""
    shifted = logits - logits.max(axis=1, keepdims=True)
    total = np.log(np.exp(shifted).sum(axis=1))
    return shifted[np.arange(len(targets)), targets] - total


def greedy(model: qwen35.Model, ids: list[int]) -> list[int]:
    """Continue a sequence with the most probable token until one ends it."""
    made: list[int] = []
    while len(made) < N_GREEDY:
        token = int(model.forward(ids + made)[-1].argmax())
        made.append(token)
        if token in (corpus.END_OF_TEXT, corpus.TURN_END):
            break
    return made


def loss_of(model: qwen35.Model, ids: list[int]) -> float:
    """Return the summed loss of all ids but the first, in nats."""
    return -float(log_probabilities(model.forward(ids[:-1]), ids[1:]).sum())


def documents(
    model: qwen35.Model, tokenizer: tokenizers.Tokenizer, path: pathlib.Path
) -> dict[str, Any]:
    """Return the loss of the first documents of a file as it is, without a token in front."""
    raw = path.read_text(encoding="utf-8").split(corpus.SEPARATOR)[:N_DOCUMENTS]
    ids = [tokenizer.encode(document.strip()).ids for document in raw]
    n_scored = sum(len(i) - 1 for i in ids)
    nll = sum(loss_of(model, i) for i in ids)
    return {
        "what": f"the first {N_DOCUMENTS} documents of testdata/stories260k/{path.name} without "
        "blanks at their ends, each from an empty state; loss of all but the first token, in nats",
        "n_tokens": n_scored,
        "mean_nll": float(f"{nll / n_scored:.8g}"),
    }


def expectations(
    path: pathlib.Path, tokenizer: tokenizers.Tokenizer, held_out: pathlib.Path
) -> dict[str, Any]:
    """Return the golden record of the exported file."""
    stories = corpus.read_stories(held_out)
    end = [corpus.END_OF_TEXT]
    ids = (end + tokenizer.encode(stories[0]).ids)[:N_GOLDEN_IDS]
    record = golden.make(path, ids, POSITIONS)
    record["encodings"] = [{"text": t, "ids": tokenizer.encode(t).ids} for t in stories[1:4]]
    model = qwen35.Model.load(path)
    record["greedy"] = []
    for prompt in PROMPTS:
        prompt_ids = tokenizer.encode(prompt).ids
        made = greedy(model, prompt_ids)
        record["greedy"].append(
            {
                "prompt": prompt,
                "prompt_ids": prompt_ids,
                "ids": made,
                "text": tokenizer.decode(made),
            }
        )
    losses, counts = [], []
    for story in stories:
        ids = end + tokenizer.encode(story).ids + end
        losses.append(loss_of(model, ids))
        counts.append(len(ids) - 1)
    record["held_out"] = {
        "what": "stories of testdata/stories260k/tinystories_40.txt after tidying, each from an "
        "empty state: id 0, the story, id 0; loss of all but the first id, in nats",
        "n_tokens": counts,
        "nll": golden.rounded(np.array(losses)),
        "loss_per_token": float(f"{sum(losses) / sum(counts):.8g}"),
    }
    record["documents"] = documents(model, tokenizer, held_out)
    return record


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run", type=pathlib.Path, help="folder of the run")
    parser.add_argument("output", type=pathlib.Path, help="folder for the files")
    parser.add_argument("--held-out", type=pathlib.Path, required=True)
    options = parser.parse_args()
    torch.set_num_threads(1)

    state = torch.load(options.run / "checkpoint.pt", weights_only=True)
    model = TinyModel(Config(**state["config"]))
    model.load_state_dict(state["model"])
    for layer in model.layers:  # as the files hold them, so that the comparison below is exact
        if isinstance(layer.mixer, DeltaNet):
            for weight in (layer.mixer.alpha, layer.mixer.beta):
                weight.data = weight.data.bfloat16().float()
    tokenizer = tokenizers.Tokenizer.from_file(str(options.run / "tokenizer.json"))
    for pack, (kind, file_type) in PACKS.items():
        exporter = Exporter(model, kind)
        keys = model_keys(model.c, file_type) | tokenizer_keys(tokenizer)
        keys |= contract_keys(model, exporter.folded)
        path = options.output / f"{NAME}.{pack}.gguf"
        gguf_file.write(path, keys, exporter.tensors)
        print(f"{path.name}: {path.stat().st_size} bytes")
    shutil.copyfile(options.run / "log.jsonl", options.output / f"{NAME}.log.jsonl")

    path = options.output / f"{NAME}.ptq1_0.gguf"
    record = expectations(path, tokenizer, options.held_out)
    ids = record["ids"]
    with torch.no_grad():
        padded = ids + [0] * (-len(ids) % DeltaNet.CHUNK)
        trained = model(torch.tensor([padded]))[0, record["positions"]].numpy()
    difference = float(np.abs(trained - np.array(record["logits"])).max())
    print(f"largest difference from the training code: {difference:.3g}")
    print(f"held-out loss: {record['held_out']['loss_per_token']:.4f} per token")
    for row in record["greedy"]:
        print(f"{row['prompt']}|{row['text']}")
    golden.write(options.output / f"{NAME}.golden.json", record)


if __name__ == "__main__":
    main()
