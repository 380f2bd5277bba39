#!/usr/bin/env python3
"""What int8 activations cost a `qwen35` model, in float64.

    /usr/bin/python3 tools/reference/rounding_error.py testdata/qwen35 [NAME...]

Rounds the input of every quantized matrix as docs/architecture.md says (symmetric, one scale per
group of the weight's type), and nothing else, in the forward pass of qwen35.py. Prints the rms
error of the logits at the positions of the golden file, divided by their standard deviation: with
these roundings, and the range over eight draws of random errors of the same size in their place.
"""

from __future__ import annotations

import argparse
import json
import pathlib

import gguf_file
import numpy as np
from qwen35 import Model

from hadamard import EMBEDDING, HEAD, Real, tiled_to_grouped

GROUPS = {"F32": 0, "F16": 0, "BF16": 0, "PQ2_0": 128, "PTQ1_0": 128, "Q2_0": 64}
GROUP_OF_OTHERS = 32
N_DRAWS = 8


class RoundedModel(Model):
    """A model whose matrices read int8 activations."""

    draws: np.random.Generator | None = None  # random errors of the same size instead
    kinds: dict[str, str]

    @classmethod
    def read(cls, path: pathlib.Path) -> RoundedModel:
        """Read a GGUF file."""
        metadata, tensors = gguf_file.read(path)
        model = cls(metadata, {name: tensor.decode() for name, tensor in tensors.items()})
        model.kinds = {name: tensor.kind.name for name, tensor in tensors.items()}
        return model

    def rounded(self, x: Real, name: str) -> Real:
        """Return the rows as the matrix of that name reads them."""
        group = GROUPS.get(self.kinds[name], GROUP_OF_OTHERS)
        if group == 0:
            return x
        out = np.empty_like(x)
        for begin in range(0, x.shape[-1], group):
            part = x[..., begin : begin + group]
            step = np.abs(part).max(axis=-1, keepdims=True) / 127
            step[step == 0] = 1
            if self.draws is None:
                out[..., begin : begin + group] = np.round(part / step) * step
            else:
                error = self.draws.uniform(-0.5, 0.5, part.shape) * step
                out[..., begin : begin + group] = part + error
        return out

    def linear(self, x: Real, name: str) -> Real:
        """Multiply by a matrix; x [n, width]."""
        if name in self.contract.folded:
            if self.contract.v_grouped and name.endswith(".ssm_out.weight"):
                x = tiled_to_grouped(x, self.shape.n_k, self.shape.n_v)
            x = self.rotate(x)
        return self.rounded(x, name) @ self.weights[name].T

    def head(self, x: Real) -> Real:
        """Logits of hidden states after the output norm."""
        if HEAD in self.weights:
            return self.linear(x, HEAD)
        if self.contract.latent_embedding:
            x = self.rotate(x)
        return self.rounded(x, EMBEDDING) @ self.weights[EMBEDDING].T


def relative_error(got: Real, want: Real) -> float:
    """Rms error divided by the standard deviation."""
    return float(np.sqrt(np.mean((got - want) ** 2)) / want.std())


def main() -> None:
    """Run the tool."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("directory", type=pathlib.Path)
    parser.add_argument("names", nargs="*")
    args = parser.parse_args()
    names = args.names or sorted(
        path.name.removesuffix(".golden.json")
        for path in args.directory.glob("*.golden.json")
        if path.with_name(path.name.removesuffix(".golden.json") + ".gguf").exists()
    )
    print("model            rounded   random errors of that size: least  mean  most")
    for name in names:
        golden = json.loads((args.directory / f"{name}.golden.json").read_text())
        path = args.directory / f"{name}.gguf"
        at = golden["positions"]
        want = Model.load(path).forward(golden["ids"])[at]
        model = RoundedModel.read(path)
        rounded = relative_error(model.forward(golden["ids"])[at], want)
        random = []
        for seed in range(N_DRAWS):
            model.draws = np.random.default_rng(seed)
            random.append(relative_error(model.forward(golden["ids"])[at], want))
        print(
            f"{name:16} {rounded:.4f}    {min(random):.4f}  {np.mean(random):.4f}  "
            f"{max(random):.4f}"
        )


if __name__ == "__main__":
    main()
