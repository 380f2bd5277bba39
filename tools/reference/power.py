#!/usr/bin/env python3
"""Measure how far each known misreading of a rotated `qwen35` file moves its logits.

    python3 tools/reference/power.py MODEL.gguf --golden MODEL.golden.json --out MODEL.power.json

A test that compares logits with a limit is worth something only if the mistakes that it is meant
to catch break that limit. For every mistake the output holds the largest logit difference, the mean
KL divergence (nats) from the right distribution over all positions, the share of positions whose
most probable token changes, and the wrong logits at the last golden position. Most of the mistakes
equal a change of the file's keys, which `same_as` names, so that an engine can be made to commit
them.
"""

from __future__ import annotations

import argparse
import json
import pathlib
from typing import Any

import numpy as np
from golden import rounded
from qwen35 import Mistake, Model

from hadamard import Real

SAME_AS = {
    Mistake.NO_INVERSE: "inverse_weight_names removed",
    Mistake.TILED_ORDER: "gdn_v_grouped removed",
    Mistake.PLAIN_HEAD: "output.weight removed from weight_names",
    Mistake.NO_ROTATION: "all prism.hadamard keys removed",
}


def log_softmax(logits: Real) -> Real:
    """Log-probabilities over the last dimension."""
    shifted = logits - logits.max(axis=-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))


def divergence(right: Real, wrong: Real) -> float:
    """Mean KL divergence of `wrong` from `right`, in nats."""
    log_p, log_q = log_softmax(right), log_softmax(wrong)
    return float((np.exp(log_p) * (log_p - log_q)).sum(axis=-1).mean())


def measure(path: pathlib.Path, ids: list[int], position: int) -> dict[str, Any]:
    """Return the record of one file."""
    right = Model.load(path).forward(ids)
    record: dict[str, Any] = {}
    for mistake in Mistake:
        model = Model.load(path, mistake)
        grouping_matters = model.contract.v_grouped and model.shape.n_k != model.shape.n_v
        if mistake is Mistake.NONE or (mistake is Mistake.TILED_ORDER and not grouping_matters):
            continue
        if mistake is Mistake.SIGNS_AFTER and model.contract.signs is None:
            continue
        wrong = model.forward(ids)
        record[mistake.name.lower()] = {
            "what": mistake.value,
            "same_as": SAME_AS.get(mistake),
            "max_abs_error": float(f"{np.abs(wrong - right).max():.4g}"),
            "mean_kl": float(f"{divergence(right, wrong):.4g}"),
            "top_token_changed": float((wrong.argmax(1) != right.argmax(1)).mean()),
            "position": position,
            "logits": rounded(wrong[position]),
        }
    return record


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("--golden", type=pathlib.Path, required=True, help="gives the token ids")
    parser.add_argument("--out", type=pathlib.Path, required=True)
    options = parser.parse_args()
    golden = json.loads(options.golden.read_text())
    record = measure(options.model, golden["ids"], golden["positions"][-1])
    rows = ",\n".join(f" {json.dumps(name)}: {json.dumps(row)}" for name, row in record.items())
    options.out.write_text(f"{{\n{rows}\n}}\n")
    for name, row in record.items():
        error, kl, top = (row[k] for k in ("max_abs_error", "mean_kl", "top_token_changed"))
        print(f"{name:14} largest error {error:<8} KL {kl:<8} top token changed {top:.2f}")


if __name__ == "__main__":
    main()
