#!/usr/bin/env python3
"""Write the expected logits of a `qwen35` GGUF file, computed by the float64 forward pass.

    python3 tools/reference/golden.py MODEL.gguf --ids 5,6,7 --positions 0,2 > MODEL.golden.json
    python3 tools/reference/golden.py MODEL.gguf --check MODEL.golden.json

The second form computes again what a golden file holds and compares.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import sys
from typing import Any

import numpy as np
import qwen35

PROBE_POSITION = 1  # has a predecessor, a conv history and a rotation that is not zero
SOURCE = "tools/reference, float64 NumPy"
TOLERANCE = 1e-6


def rounded(values: np.ndarray) -> list[float]:
    """Eight significant digits are enough for a tolerance of 1e-6."""
    return [float(f"{v:.8g}") for v in values]


def make(path: pathlib.Path, ids: list[int], positions: list[int]) -> dict[str, Any]:
    """Return the golden record of a file."""
    probes: qwen35.Probes = {}
    logits = qwen35.Model.load(path).forward(ids, probes)
    return {
        "model": path.name,
        "source": SOURCE,
        "ids": ids,
        "positions": positions,
        "logits": [rounded(logits[p]) for p in positions],
        "argmax": [int(i) for i in logits.argmax(axis=1)],
        "probe_position": PROBE_POSITION,
        "probes": {name: rounded(values[PROBE_POSITION]) for name, values in probes.items()},
    }


def write(path: pathlib.Path, record: dict[str, Any]) -> None:
    """Write a record: one line for each list, so that differences stay readable."""
    lines = []
    for key, value in record.items():
        if key == "logits":
            rows = ",\n  ".join(json.dumps(row) for row in value)
            text = f"[\n  {rows}\n ]"
        elif key == "probes":
            rows = ",\n  ".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in value.items())
            text = f"{{\n  {rows}\n }}"
        else:
            text = json.dumps(value)
        lines.append(f" {json.dumps(key)}: {text}")
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n")


def check(path: pathlib.Path, golden: pathlib.Path) -> float:
    """Return the largest difference between a golden file and a new computation."""
    old = json.loads(golden.read_text())
    new = make(path, old["ids"], old["positions"])
    worst = float(np.max(np.abs(np.array(old["logits"]) - np.array(new["logits"]))))
    for name, values in old["probes"].items():
        worst = max(worst, float(np.max(np.abs(np.array(values) - new["probes"][name]))))
    return worst


def integers(text: str) -> list[int]:
    """Parse a comma-separated list."""
    return [int(part) for part in text.split(",")]


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("--ids", type=integers, help="token ids, separated by commas")
    parser.add_argument("--positions", type=integers, help="positions whose logits are kept")
    parser.add_argument("--out", type=pathlib.Path, help="golden file to write")
    parser.add_argument("--check", type=pathlib.Path, help="golden file to compare with")
    options = parser.parse_args()
    if options.check:
        worst = check(options.model, options.check)
        print(f"{options.model.name}: largest difference {worst:.3g}")
        return 0 if worst < TOLERANCE else 1
    if not options.ids or not options.out:
        parser.error("--ids and --out, or --check")
    positions = options.positions or [len(options.ids) - 1]
    write(options.out, make(options.model, options.ids, positions))
    return 0


if __name__ == "__main__":
    sys.exit(main())
