#!/usr/bin/env python3
"""Score multiple-choice items with an independent implementation and compare item by item.

Reads the file that `tensorsharp eval choice --details` wrote, computes the same items' scores with
PyTorch (see reference_perplexity.py for the models and tokenizers), and prints the largest
difference of a log-likelihood and how many choices differ. Prompts follow EleutherAI's evaluation
harness: ARC as "Question: ...\\nAnswer:" and " answer", HellaSwag with its clean-up of the crawled
texts. Each choice is computed alone, from the whole sequence.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import re
import sys

import torch
from reference_perplexity import (
    Model,
    adds_bos,
    byte_level_ids,
    plain_forward,
    sentencepiece_ids,
    transformers_forward,
)


def clean(text: str) -> str:
    """Remove the marks of crawled texts."""
    text = text.strip().replace(" [title]", ". ")
    return re.sub("\\[.*?\\]", "", text).replace("  ", " ")


def arc_item(record: dict) -> tuple[str, list[str], int]:
    """Return context, choices and the right one of an ARC record."""
    return record["query"].rstrip() + "\nAnswer:", record["choices"], record["gold"]


def hellaswag_item(record: dict) -> tuple[str, list[str], int]:
    """Return context, choices and the right one of a HellaSwag record."""
    context = record["ctx_a"] + " " + record["ctx_b"].capitalize()
    return (
        clean(record["activity_label"] + ": " + context),
        [clean(ending) for ending in record["endings"]],
        int(record["label"]),
    )


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("--task", type=pathlib.Path, required=True, help="JSON lines")
    parser.add_argument("--details", type=pathlib.Path, required=True)
    parser.add_argument("--limit", type=int, default=40)
    parser.add_argument("--engine", choices=("plain", "transformers"), default="plain")
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    model = Model(options.model)
    forward = (plain_forward if options.engine == "plain" else transformers_forward)(model)
    byte_level = model.get("tokenizer.ggml.model") == "gpt2"
    bos = [model.get("tokenizer.ggml.bos_token_id")] if adds_bos(model) else []

    def encode(text: str) -> list[int]:
        return (byte_level_ids if byte_level else sentencepiece_ids)(model, text)

    records = [json.loads(line) for line in options.task.read_text().splitlines() if line.strip()]
    details = [json.loads(line) for line in options.details.read_text().splitlines()]
    largest, differing, right, right_norm = 0.0, 0, 0, 0
    count = min(options.limit, len(records), len(details))
    for record, detail in zip(records[:count], details[:count], strict=True):
        read = hellaswag_item if "endings" in record else arc_item
        context, choices, gold = read(record)
        scores = []
        for choice in choices:
            stripped = context.rstrip()
            before = encode(stripped)
            after = encode(context + " " + choice)[len(before) :]
            ids = torch.tensor(bos + before + after)
            with torch.no_grad():
                hidden = forward(ids)[len(ids) - len(after) - 1 : -1]
                logp = torch.log_softmax(hidden @ model.head.T, -1)
            scores.append(logp[torch.arange(len(after)), torch.tensor(after)].double().sum().item())
        per_byte = [s / len(c.encode()) for s, c in zip(scores, choices, strict=True)]
        best, best_norm = scores.index(max(scores)), per_byte.index(max(per_byte))
        right, right_norm = right + (best == gold), right_norm + (best_norm == gold)
        for a, b in zip(scores, detail["log_likelihoods"], strict=True):
            largest = max(largest, abs(a - b))
        if (best, best_norm) != (detail["chosen"], detail["chosen_norm"]):
            differing += 1
            print(
                f"item {detail['item']}: {best}, {best_norm} here; {detail['chosen']}, "
                f"{detail['chosen_norm']} there; {scores} {detail['log_likelihoods']}"
            )
    print(
        json.dumps(
            {
                "items": count,
                "largest_difference": largest,
                "differing_items": differing,
                "accuracy": right / count,
                "accuracy_norm": right_norm / count,
            }
        )
    )
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
