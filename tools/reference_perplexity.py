#!/usr/bin/env python3
"""Perplexity of a llama or gemma3 GGUF file, computed without any code of this project.

    python3 tools/reference_perplexity.py MODEL.gguf --data wiki.test.raw --chunks 40 --json OUT

Weights are decoded by the `gguf` package and used as float32. Two implementations can do the
forward pass: `--engine plain`, written out below with PyTorch, and `--engine transformers`, the
library's own model built from the same file. Chunking and scoring are those of llama.cpp's
perplexity tool: the whole text is one token stream (after BOS where the model adds it), cut into
chunks of `--ctx`; the first token of a chunk is replaced by BOS where the model adds it; the
logits at positions ctx/2 .. ctx-2 are scored.

Text is tokenized from the file's vocabulary: byte-level BPE of the `smollm` kind with the
`tokenizers` package, SentencePiece by score (`llama`) by the code below. Other pre-tokenizers are
refused. The figures in the documentation were made with Python 3.11, torch 2.15.0, transformers
5.24.0, gguf 0.19.0, tokenizers 0.23.3 and numpy 2.4.6.
"""

from __future__ import annotations

import argparse
import functools
import hashlib
import heapq
import json
import math
import pathlib
import sys
import time
from collections.abc import Callable
from typing import Any

import gguf
import numpy as np
import torch

Forward = Callable[[torch.Tensor], torch.Tensor]
"""ids [n_tokens] -> final hidden states after the output norm [n_tokens, d_model]."""

NORMAL, CONTROL, USER_DEFINED = 1, 3, 4


class Model:
    """A GGUF file's metadata and decoded tensors."""

    def __init__(self, path: pathlib.Path) -> None:
        reader = gguf.GGUFReader(path)
        self.path = path
        self.fields = reader.fields
        self.architecture: str = self.get("general.architecture")
        self.tensors: dict[str, torch.Tensor] = {}
        for tensor in reader.tensors:
            values = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
            self.tensors[tensor.name] = torch.from_numpy(np.array(values, dtype=np.float32))
        self.head = self.tensors.get("output.weight", self.tensors["token_embd.weight"])

    def get(self, key: str, default: Any = None) -> Any:
        """Return a metadata value."""
        field = self.fields.get(key)
        return default if field is None else field.contents()

    def param(self, key: str, default: Any = None) -> Any:
        """Return a value of the architecture."""
        return self.get(f"{self.architecture}.{key}", default)


def rms_norm(x: torch.Tensor, weight: torch.Tensor, epsilon: float) -> torch.Tensor:
    """Root-mean-square normalisation over the last dimension."""
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + epsilon) * weight


def rotate(x: torch.Tensor, base: float, interleaved: bool) -> torch.Tensor:
    """Rotary embedding of [n_tokens, n_heads, head_dim] at positions 0, 1, ..."""
    n_tokens, _, d = x.shape
    theta = torch.arange(n_tokens)[:, None] * base ** (-torch.arange(0, d, 2).double() / d)
    cos, sin = theta.cos().float()[:, None], theta.sin().float()[:, None]
    out = torch.empty_like(x)
    first, second = (np.s_[..., 0::2], np.s_[..., 1::2])
    if not interleaved:
        first, second = (np.s_[..., : d // 2], np.s_[..., d // 2 :])
    a, b = x[first], x[second]
    out[first], out[second] = a * cos - b * sin, a * sin + b * cos
    return out


def attend(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float, window: int
) -> torch.Tensor:
    """Causal grouped attention; [n_tokens, heads, head_dim] each; window 0 = unlimited."""
    n_tokens, n_heads, _ = q.shape
    repeat = n_heads // k.shape[1]
    k, v = k.repeat_interleave(repeat, 1), v.repeat_interleave(repeat, 1)
    scores = torch.einsum("qhd,khd->hqk", q, k) * scale
    distance = torch.arange(n_tokens)[:, None] - torch.arange(n_tokens)[None, :]
    hidden = (distance < 0) | ((distance >= window) if window else False)
    weights = scores.masked_fill(hidden, -math.inf).softmax(-1)
    return torch.einsum("hqk,khd->qhd", weights, v).reshape(n_tokens, -1)


def plain_forward(model: Model) -> Forward:
    """Return the forward pass of the llama or gemma3 architecture."""
    gemma = model.architecture == "gemma3"
    if model.architecture not in ("llama", "gemma3"):
        raise SystemExit(f"{model.path}: architecture {model.architecture} is not supported here")
    if model.param("rope.scaling.type", "none") != "none" or "rope_freqs.weight" in model.tensors:
        raise SystemExit(f"{model.path}: rotary scaling is not supported here")
    d_model, n_heads = model.param("embedding_length"), model.param("attention.head_count")
    n_kv_heads = model.param("attention.head_count_kv", n_heads)
    head_dim = model.param("attention.key_length", d_model // n_heads)
    epsilon = model.param("attention.layer_norm_rms_epsilon")
    base = model.param("rope.freq_base", 10000.0)
    window = model.param("attention.sliding_window", 0) if gemma else 0
    period = model.param("attention.sliding_window_pattern", 6)
    activation = (
        (lambda x: torch.nn.functional.gelu(x, approximate="tanh"))
        if gemma
        else torch.nn.functional.silu
    )

    def forward(ids: torch.Tensor) -> torch.Tensor:
        n_tokens = len(ids)
        x = model.tensors["token_embd.weight"][ids]
        if gemma:
            x = x * d_model**0.5
        for layer in range(model.param("block_count")):

            def w(name: str, layer: int = layer) -> torch.Tensor:
                return model.tensors[f"blk.{layer}.{name}.weight"]

            local = gemma and window and (layer + 1) % period != 0
            layer_base = model.param("rope.freq_base_swa", 10000.0) if local else base
            a = rms_norm(x, w("attn_norm"), epsilon)
            q = (a @ w("attn_q").T).view(n_tokens, n_heads, head_dim)
            k = (a @ w("attn_k").T).view(n_tokens, n_kv_heads, head_dim)
            v = (a @ w("attn_v").T).view(n_tokens, n_kv_heads, head_dim)
            if gemma:
                q = rms_norm(q, w("attn_q_norm"), epsilon)
                k = rms_norm(k, w("attn_k_norm"), epsilon)
            q = rotate(q, layer_base, interleaved=not gemma)
            k = rotate(k, layer_base, interleaved=not gemma)
            y = attend(q, k, v, head_dim**-0.5, window if local else 0) @ w("attn_output").T
            x = x + (rms_norm(y, w("post_attention_norm"), epsilon) if gemma else y)
            a = rms_norm(x, w("ffn_norm"), epsilon)
            y = (activation(a @ w("ffn_gate").T) * (a @ w("ffn_up").T)) @ w("ffn_down").T
            x = x + (rms_norm(y, w("post_ffw_norm"), epsilon) if gemma else y)
        return rms_norm(x, model.tensors["output_norm.weight"], epsilon)

    return forward


def transformers_forward(model: Model) -> Forward:
    """Return the forward pass of the transformers library for the same file."""
    import transformers

    network = transformers.AutoModelForCausalLM.from_pretrained(
        model.path.parent,
        gguf_file=model.path.name,
        dtype=torch.float32,
        attn_implementation="eager",
    ).eval()
    return lambda ids: network.base_model(ids[None]).last_hidden_state[0]


@functools.cache
def byte_level_tokenizer(model: Model) -> Any:
    """Return the file's byte-level BPE; digits stand alone (`smollm`)."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    pre = model.get("tokenizer.ggml.pre")
    if pre != "smollm":
        raise SystemExit(f"{model.path}: pre-tokenizer {pre} is not supported here")
    vocabulary = {token: i for i, token in enumerate(model.get("tokenizer.ggml.tokens"))}
    merges = [tuple(merge.split(" ")) for merge in model.get("tokenizer.ggml.merges")]
    tokenizer = Tokenizer(models.BPE(vocabulary, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
        ]
    )
    return tokenizer


def byte_level_ids(model: Model, text: str) -> list[int]:
    """Tokenize with byte-level BPE."""
    return byte_level_tokenizer(model).encode(text, add_special_tokens=False).ids


def sentencepiece_ids(model: Model, text: str) -> list[int]:
    """Tokenize by merging the neighbours with the best score, user-defined tokens first."""
    tokens = model.get("tokenizer.ggml.tokens")
    scores = model.get("tokenizer.ggml.scores")
    types = model.get("tokenizer.ggml.token_type")
    vocabulary = {token: i for i, token in enumerate(tokens)}
    fragments: list[str | int] = [text]
    own = [i for i, kind in enumerate(types) if kind == USER_DEFINED and tokens[i] in text]
    for token in sorted(own, key=lambda i: -len(tokens[i].encode())):
        split: list[str | int] = []
        for fragment in fragments:
            if isinstance(fragment, int):
                split.append(fragment)
                continue
            for number, piece in enumerate(fragment.split(tokens[token])):
                split += ([token] if number else []) + ([piece] if piece else [])
        fragments = split
    ids: list[int] = []
    prefix = " " if model.get("tokenizer.ggml.add_space_prefix", True) else ""
    for fragment in fragments:
        if isinstance(fragment, int):
            ids.append(fragment)
        else:
            ids += merge_by_score((prefix + fragment).replace(" ", "\u2581"), vocabulary, scores)
    return ids


def merge_by_score(text: str, vocabulary: dict[str, int], scores: list[float]) -> list[int]:
    """Merge the best pair of neighbours (the leftmost of equals) until none is a token."""
    pieces: list[str | None] = list(text)
    after = [*range(1, len(pieces)), -1]
    before = list(range(-1, len(pieces) - 1))
    queue: list[tuple[float, int, int, str]] = []

    def consider(left: int, right: int) -> None:
        if left >= 0 and right >= 0:
            joined = f"{pieces[left]}{pieces[right]}"
            if joined in vocabulary:
                heapq.heappush(queue, (-scores[vocabulary[joined]], left, right, joined))

    for i in range(len(pieces) - 1):
        consider(i, i + 1)
    while queue:
        _, left, right, joined = heapq.heappop(queue)
        if pieces[left] is None or pieces[right] is None or after[left] != right:
            continue
        if f"{pieces[left]}{pieces[right]}" != joined:
            continue
        pieces[left], pieces[right] = joined, None
        after[left] = after[right]
        if after[right] >= 0:
            before[after[right]] = left
        consider(before[left], left)
        consider(left, after[left])
    ids: list[int] = []
    for piece in pieces:
        if piece is None:
            continue
        if piece in vocabulary:
            ids.append(vocabulary[piece])
        else:
            ids += [vocabulary[f"<0x{byte:02X}>"] for byte in piece.encode()]
    return ids


def tokenize(model: Model, text: str) -> list[int]:
    """Return the ids of the text, after BOS if the model adds it."""
    kind = model.get("tokenizer.ggml.model")
    ids = (byte_level_ids if kind == "gpt2" else sentencepiece_ids)(model, text)
    return ([model.get("tokenizer.ggml.bos_token_id")] if adds_bos(model) else []) + ids


def adds_bos(model: Model) -> bool:
    """Tell whether the model begins with BOS."""
    return bool(
        model.get("tokenizer.ggml.add_bos_token", model.get("tokenizer.ggml.model") == "llama")
    )


def perplexity(
    model: Model, forward: Forward, ids: list[int], ctx: int, chunks: int
) -> list[float]:
    """Return the summed negative log-likelihood of each chunk."""
    sums = []
    for chunk in range(min(chunks, len(ids) // ctx)):
        part = ids[chunk * ctx : (chunk + 1) * ctx]
        if adds_bos(model):
            part[0] = model.get("tokenizer.ggml.bos_token_id")
        started = time.monotonic()
        with torch.no_grad():
            hidden = forward(torch.tensor(part))[ctx // 2 : ctx - 1]
            logits = hidden @ model.head.T
            target = torch.tensor(part[ctx // 2 + 1 :])
            loss = torch.nn.functional.cross_entropy(logits, target, reduction="none")
        sums.append(loss.double().sum().item())
        so_far = math.exp(sum(sums) / (len(sums) * (ctx - 1 - ctx // 2)))
        took = time.monotonic() - started
        print(f"chunk {chunk + 1}: {so_far:.4f} ({took:.1f} s)", file=sys.stderr, flush=True)
    return sums


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("--data", type=pathlib.Path, help="UTF-8 text")
    parser.add_argument("--ctx", type=int, default=512)
    parser.add_argument("--chunks", type=int, default=40)
    parser.add_argument("--engine", choices=("plain", "transformers"), default="plain")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json", type=pathlib.Path, help="write ids and the figures of each chunk")
    parser.add_argument("--prompt", help="also write the logits of this text (--logits)")
    parser.add_argument("--logits", type=pathlib.Path, help="float32 .npy [n_tokens, n_vocab]")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)

    model = Model(options.model)
    make = plain_forward if options.engine == "plain" else transformers_forward
    forward = make(model)
    if options.prompt and options.logits:
        ids = tokenize(model, options.prompt)
        with torch.no_grad():
            logits = forward(torch.tensor(ids)) @ model.head.T
        np.save(options.logits, logits.numpy().astype("<f4"))
        options.logits.with_suffix(".json").write_text(json.dumps({"ids": ids}) + "\n")
    if not options.data:
        return
    raw = options.data.read_bytes()
    ids = tokenize(model, raw.decode())
    sums = perplexity(model, forward, ids, options.ctx, options.chunks)
    n_scored = len(sums) * (options.ctx - 1 - options.ctx // 2)
    result = {
        "model": options.model.name,
        "engine": options.engine,
        "data_sha256": hashlib.sha256(raw).hexdigest(),
        "context": options.ctx,
        "n_chunks": len(sums),
        "n_scored": n_scored,
        "n_stream_tokens": len(ids),
        "perplexity": math.exp(sum(sums) / n_scored),
    }
    print(json.dumps(result))
    if options.json:
        used = ids[: len(sums) * options.ctx]
        options.json.write_text(json.dumps({**result, "chunk_nll": sums, "ids": used}) + "\n")


if __name__ == "__main__":
    main()
