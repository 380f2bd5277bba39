#!/usr/bin/env python3
r"""Train the tiny ternary hybrid model of testdata/qwen35.

    python3 tools/train_tiny/train.py --out RUN --minutes 40 \
        --held-out testdata/stories260k/tinystories_40.txt TINYSTORIES.txt...

Needs PyTorch (CPU is enough: two cores, under 45 minutes) and `tokenizers`. RUN gets
`tokenizer.json`, `checkpoint.pt` (rewritten every few minutes; a second call with the same RUN goes
on from there) and `log.jsonl`. `export.py` then writes the GGUF files.

The learning rate follows the budget, `--steps` or `--minutes`, whichever is nearer to its end: it
rises over the first steps, then falls to zero along a cosine. With `--steps` alone and one thread a
run repeats exactly; with `--minutes` the number of steps depends on the machine.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import os
import pathlib
import random
import time
from typing import Any

import corpus
import numpy as np
import tokenizers
import torch
import torch.nn.functional as F
from torch import Tensor

from model import Config, Rotated, TinyModel

SEED = 20261130
WARMUP_STEPS = 40


class Muon(torch.optim.Optimizer):
    """Momentum whose update is made orthogonal (five Newton-Schulz steps), for matrices."""

    def __init__(self, params: list[torch.nn.Parameter], lr: float, weight_decay: float) -> None:
        super().__init__(params, {"lr": lr, "weight_decay": weight_decay, "momentum": 0.95})

    @staticmethod
    def orthogonal(g: Tensor) -> Tensor:
        """Return a matrix with the singular vectors of g and singular values near 1."""
        x = g.mT if g.shape[0] > g.shape[1] else g
        x = x / (x.norm() + 1e-7)
        for _ in range(5):
            gram = x @ x.mT
            x = 3.4445 * x + (-4.775 * gram + 2.0315 * (gram @ gram)) @ x
        return x.mT if g.shape[0] > g.shape[1] else x

    @torch.no_grad()
    def step(self, closure: None = None) -> None:
        """Update the parameters."""
        for group in self.param_groups:
            for p in group["params"]:
                momentum = self.state[p].setdefault("momentum", torch.zeros_like(p))
                momentum.lerp_(p.grad, 1 - group["momentum"])
                update = self.orthogonal(p.grad.lerp(momentum, group["momentum"]))
                scale = 0.2 * math.sqrt(max(p.shape))  # the size of an Adam update
                p.mul_(1 - group["lr"] * group["weight_decay"])
                p.add_(update, alpha=-group["lr"] * scale)


def make_optimizers(model: TinyModel, options: argparse.Namespace) -> list[torch.optim.Optimizer]:
    """Muon or Adam for the ternary matrices of the layers; Adam for everything else."""
    tables = {model.embedding.latent, model.head.latent}
    latents = [m.latent for m in model.modules() if isinstance(m, Rotated)]
    matrices = [p for p in latents if p not in tables]
    rest = [p for p in model.parameters() if p not in set(latents)]
    adam_groups = [
        {"params": list(tables), "lr": options.lr_table, "weight_decay": 0.0},
        {"params": rest, "lr": options.lr_table, "weight_decay": 0.0},
    ]
    if options.optimizer == "adam":
        adam_groups.append({"params": matrices, "lr": options.lr, "weight_decay": 0.05})
    optimizers: list[torch.optim.Optimizer] = [
        torch.optim.AdamW(adam_groups, betas=(0.9, 0.95), eps=1e-10, fused=True)
    ]
    if options.optimizer == "muon":
        optimizers.append(Muon(matrices, options.lr, 0.05))
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["peak"] = group["lr"]
    return optimizers


class Batches:
    """Random windows of a token stream, every window of an epoch once."""

    def __init__(self, ids: np.ndarray, n_tokens: int, seed: int) -> None:
        self.ids = torch.from_numpy(ids.astype(np.int64))
        self.n_tokens = n_tokens
        self.rng = np.random.default_rng(seed)
        self.starts: list[int] = []

    def next(self, n_batch: int) -> Tensor:
        """Return [n_batch, n_tokens + 1] ids."""
        rows = []
        for _ in range(n_batch):
            if not self.starts:
                first = int(self.rng.integers(0, self.n_tokens))
                starts = np.arange(first, len(self.ids) - self.n_tokens - 1, self.n_tokens)
                self.starts = self.rng.permutation(starts).tolist()
            start = self.starts.pop()
            rows.append(self.ids[start : start + self.n_tokens + 1])
        return torch.stack(rows)

    def state(self) -> dict[str, Any]:
        """Return what `restore` needs."""
        return {"rng": self.rng.bit_generator.state, "starts": self.starts}

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from a saved state."""
        self.rng.bit_generator.state = state["rng"]
        self.starts = state["starts"]


def held_out_loss(model: TinyModel, stories: list[list[int]]) -> float:
    """Mean loss per token of whole stories, each from a fresh state after the end mark."""
    total, count = 0.0, 0
    with torch.no_grad():
        for ids in stories:
            targets = torch.tensor(ids[1:])
            n_pad = -(len(ids) - 1) % 32
            logits = model(torch.tensor([ids[:-1] + [0] * n_pad]))[0, : len(targets)]
            total += float(F.cross_entropy(logits, targets, reduction="sum"))
            count += len(targets)
    return total / count


def save(path: pathlib.Path, state: dict[str, Any]) -> None:
    """Replace a checkpoint whole or not at all."""
    part = path.with_suffix(".part")
    torch.save(state, part)
    os.replace(part, path)


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("texts", nargs="+", type=pathlib.Path, help="TinyStories text files")
    parser.add_argument("--out", type=pathlib.Path, required=True, help="folder of the run")
    parser.add_argument("--held-out", type=pathlib.Path, required=True, help="stories to hold out")
    parser.add_argument("--steps", type=int, default=4000)
    parser.add_argument("--minutes", type=float, default=40.0, help="time limit of the whole run")
    parser.add_argument("--batch", type=int, default=8, help="sequences per step")
    parser.add_argument("--n-tokens", type=int, default=256, help="tokens per sequence")
    parser.add_argument("--lr", type=float, default=0.01, help="peak rate of the matrices")
    parser.add_argument("--lr-table", type=float, default=0.004, help="peak rate of all else")
    parser.add_argument("--optimizer", choices=("adam", "muon"), default="muon")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--n-vocab", type=int, default=1024)
    parser.add_argument("--log-every", type=int, default=10)
    parser.add_argument("--check-minutes", type=float, default=4.0, help="between checkpoints")
    return parser.parse_args()


def main() -> None:
    """Train."""
    options = parse_arguments()
    torch.manual_seed(SEED)
    torch.set_num_threads(options.threads)
    options.out.mkdir(parents=True, exist_ok=True)

    held_out = corpus.read_stories(options.held_out)
    stories = corpus.training_stories(options.texts, held_out)
    tokenizer_path = options.out / "tokenizer.json"
    if tokenizer_path.exists():
        tokenizer = tokenizers.Tokenizer.from_file(str(tokenizer_path))
    else:
        tokenizer = corpus.train_tokenizer(stories, options.n_vocab)
        tokenizer.save(str(tokenizer_path))
    ids = corpus.token_stream(stories, tokenizer, random.Random(SEED))
    end = [corpus.END_OF_TEXT]
    checks = [end + tokenizer.encode(story).ids + end for story in held_out]

    config = Config(n_vocab=tokenizer.get_vocab_size())
    model = TinyModel(config)
    optimizers = make_optimizers(model, options)
    batches = Batches(ids, options.n_tokens, SEED)

    step, before = 0, 0.0
    checkpoint = options.out / "checkpoint.pt"
    if checkpoint.exists():
        state = torch.load(checkpoint, weights_only=True)
        model.load_state_dict(state["model"])
        for optimizer, saved in zip(optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(saved)
        batches.restore(state["batches"])
        step, before = state["step"], state["seconds"]

    log_path = options.out / "log.jsonl"

    def log(**entry: object) -> None:
        with log_path.open("a") as file:
            file.write(json.dumps(entry) + "\n")
        print(json.dumps(entry), flush=True)

    if step == 0:
        log(
            licence=corpus.LICENCE_LINE,
            n_stories=len(stories),
            n_tokens=len(ids),
            n_held_out_stories=len(held_out),
            n_held_out_tokens=sum(len(c) - 1 for c in checks),
            n_parameters=sum(p.numel() for p in model.parameters()),
            config=dataclasses.asdict(config),
            options={k: str(v) for k, v in vars(options).items() if k not in ("texts", "out")},
        )
    start = time.monotonic() - before
    last_save = last_check = time.monotonic()
    losses: list[float] = []
    while True:
        seconds = time.monotonic() - start
        progress = max(step / options.steps, seconds / (60 * options.minutes))
        if progress >= 1:
            break
        rate = min(1.0, (step + 1) / WARMUP_STEPS) * 0.5 * (1 + math.cos(math.pi * progress))
        for optimizer in optimizers:
            for group in optimizer.param_groups:
                group["lr"] = group["peak"] * rate
        batch = batches.next(options.batch)
        logits = model(batch[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        losses.append(loss.item())
        step += 1
        if step % options.log_every == 0:
            mean = sum(losses) / len(losses)
            losses.clear()
            log(step=step, seconds=round(time.monotonic() - start), loss=round(mean, 4))
        now = time.monotonic()
        if now - last_save > 60 * options.check_minutes:
            last_save = now
            save_state(checkpoint, model, optimizers, batches, step, now - start)
        if now - last_check > 120 * options.check_minutes:
            last_check = now
            log(step=step, held_out_10=round(held_out_loss(model, checks[:10]), 4))
    save_state(checkpoint, model, optimizers, batches, step, time.monotonic() - start)
    log(
        step=step,
        seconds=round(time.monotonic() - start),
        tokens_seen=step * options.batch * options.n_tokens,
        held_out=round(held_out_loss(model, checks), 4),
    )


def save_state(
    path: pathlib.Path,
    model: TinyModel,
    optimizers: list[torch.optim.Optimizer],
    batches: Batches,
    step: int,
    seconds: float,
) -> None:
    """Save everything that a run needs to go on."""
    save(
        path,
        {
            "config": dataclasses.asdict(model.c),
            "model": model.state_dict(),
            "optimizers": [o.state_dict() for o in optimizers],
            "batches": batches.state(),
            "step": step,
            "seconds": seconds,
        },
    )


if __name__ == "__main__":
    main()
