"""The `prism.hadamard.*` contract: what it says, and the transforms it asks for, in float64.

With signs s and H the normalised Walsh-Hadamard matrix of each block: an activation is turned into
H (s x) before a folded matrix; a row of the stored embedding z into s (H z) after the lookup.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from numpy.typing import NDArray

Real = NDArray[np.float64]

PREFIX = "prism.hadamard."
EMBEDDING = "token_embd.weight"
HEAD = "output.weight"


def walsh_hadamard(x: Real, block: int) -> Real:
    """Apply the normalised transform to every block of the last dimension."""
    out = x.reshape(-1, block).copy()
    half = 1
    while half < block:
        pairs = out.reshape(-1, block // (2 * half), 2, half)
        out = np.stack((pairs[:, :, 0] + pairs[:, :, 1], pairs[:, :, 0] - pairs[:, :, 1]), axis=2)
        half *= 2
    return (out / np.sqrt(block)).reshape(x.shape)


def tiled_to_grouped(x: Real, n_k: int, n_v: int) -> Real:
    """Reorder the value heads of the last dimension: head r n_k + k becomes head k rep + r."""
    rep = n_v // n_k
    heads = x.reshape(*x.shape[:-1], rep, n_k, x.shape[-1] // n_v)
    return np.swapaxes(heads, -3, -2).reshape(x.shape)


def grouped_to_tiled(x: Real, n_k: int, n_v: int) -> Real:
    """Reorder the value heads of the last dimension: head k rep + r becomes head r n_k + k."""
    rep = n_v // n_k
    heads = x.reshape(*x.shape[:-1], n_k, rep, x.shape[-1] // n_v)
    return np.swapaxes(heads, -3, -2).reshape(x.shape)


@dataclasses.dataclass(frozen=True)
class Contract:
    """What a file declares. Without the keys nothing is rotated."""

    block: int = 1
    signs: dict[int, Real] | None = None
    folded: frozenset[str] = frozenset()
    latent_embedding: bool = False
    v_grouped: bool = False
    tied: bool = False

    def forward(self, x: Real) -> Real:
        """Turn an activation into the rotated basis."""
        signs = 1.0 if self.signs is None else self.signs[x.shape[-1]]
        return walsh_hadamard(x * signs, self.block)

    def inverse(self, z: Real) -> Real:
        """Turn stored rows into the ordinary basis."""
        signs = 1.0 if self.signs is None else self.signs[z.shape[-1]]
        return walsh_hadamard(z, self.block) * signs


def read_contract(metadata: dict[str, Any], shapes: dict[str, tuple[int, ...]]) -> Contract:
    """Read the contract of a file and check what the forward pass depends on."""
    keys = {k.removeprefix(PREFIX): v for k, v in metadata.items() if k.startswith(PREFIX)}
    if not keys:
        return Contract()
    version = keys["version"]
    tied = keys.get("tied_output", False)
    if version not in (1, 2) or (version == 2) != tied:
        raise ValueError(f"version {version} with tied_output {tied}")
    if keys["transform"] != "normalized-sylvester-walsh-hadamard":
        raise ValueError(f"unknown transform {keys['transform']}")
    if keys["axis"] != "input-last-dimension":
        raise ValueError(f"unknown axis {keys['axis']}")
    block = keys["block_size"]
    if block <= 0 or block & (block - 1):
        raise ValueError(f"block_size {block} is no power of two")
    names, inverse = keys["weight_names"], keys.get("inverse_weight_names", [])
    if not names or len(set(names)) != len(names) or inverse not in ([], [EMBEDDING]):
        raise ValueError("weight_names or inverse_weight_names")
    for name in [*names, *inverse]:
        if shapes[name][0] % block:
            raise ValueError(f"{name}: width {shapes[name][0]} is no multiple of {block}")
    if tied and (HEAD in shapes or not inverse):
        raise ValueError("tied_output needs a latent embedding and no output.weight")
    if inverse and HEAD not in shapes and not tied:
        raise ValueError("a latent embedding without output.weight needs version 2")

    signs = None
    if keys["sign_mode"] == "explicit":
        widths, values = keys["sign_widths"], np.asarray(keys["sign_values"], dtype=np.float64)
        if len(set(widths)) != len(widths) or sum(widths) != len(values):
            raise ValueError("sign_widths does not fit sign_values")
        if not (np.abs(values) == 1).all():
            raise ValueError("sign_values holds something else than +1 and -1")
        signs = dict(zip(widths, np.split(values, np.cumsum(widths)[:-1]), strict=True))
    elif keys["sign_mode"] != "identity":
        raise ValueError(f"unknown sign_mode {keys['sign_mode']}")
    return Contract(
        block=block,
        signs=signs,
        folded=frozenset(names),
        latent_embedding=bool(inverse),
        v_grouped=keys.get("gdn_v_grouped", False),
        tied=tied,
    )
