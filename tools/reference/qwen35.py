"""The `qwen35` forward pass in float64: plain NumPy, one token after the other.

It is written for clarity and independence, not speed, and shares nothing with the engine. Layers
are either gated delta rule (linear) or gated full attention; matrices that the `prism.hadamard.*`
keys of the file name take a rotated input. `Mistake` switches on one known misreading of these
keys, so that tests can see how far each moves the logits.
"""

from __future__ import annotations

import dataclasses
import enum
import pathlib
from typing import Any

import gguf_file
import numpy as np

from hadamard import (
    EMBEDDING,
    HEAD,
    Contract,
    Real,
    read_contract,
    tiled_to_grouped,
    walsh_hadamard,
)

Probes = dict[str, Real]


class Mistake(enum.Enum):
    """Known misreadings of a rotated file."""

    NONE = "none"
    SIGNS_AFTER = "signs after the transform"
    NO_INVERSE = "embedding used as stored"
    TILED_ORDER = "value heads left in tiled order before ssm_out"
    PLAIN_HEAD = "output head given the unrotated activation"
    NO_ROTATION = "the rotation keys ignored"
    ROTATED_GATES = "ssm_alpha and ssm_beta given the rotated activation"


@dataclasses.dataclass(frozen=True)
class Shape:
    """The hyper-parameters of the forward pass."""

    d_model: int
    n_layers: int
    n_head: int
    n_head_kv: int
    head_dim: int
    n_rot: int
    rope_base: float
    norm_eps: float
    conv_kernel: int
    d_state: int
    n_k: int
    n_v: int
    full: tuple[bool, ...]

    @classmethod
    def from_metadata(cls, metadata: dict[str, Any], names: set[str]) -> Shape:
        """Read the keys; `names` are the tensors of the file."""

        def get(key: str, default: Any = None) -> Any:
            value = metadata.get(f"qwen35.{key}", default)
            if value is None:
                raise ValueError(f"qwen35.{key} is missing")
            return value

        d_model = get("embedding_length")
        n_layers = get("block_count") - get("nextn_predict_layers", 0)
        n_head = get("attention.head_count")
        head_dim = get("attention.key_length", d_model // n_head)
        recurrent = metadata.get("qwen35.attention.recurrent_layers")
        if recurrent is None:
            interval = get("full_attention_interval", 4)
            recurrent = [(i + 1) % interval != 0 for i in range(n_layers)]
        full = tuple(not r for r in recurrent[:n_layers])
        for i, is_full in enumerate(full):
            if is_full == (f"blk.{i}.ssm_conv1d.weight" in names):
                raise ValueError(f"layer {i}: tensors and keys disagree about its kind")
        return cls(
            d_model=d_model,
            n_layers=n_layers,
            n_head=n_head,
            n_head_kv=get("attention.head_count_kv", n_head),
            head_dim=head_dim,
            n_rot=get("rope.dimension_count", head_dim),
            rope_base=get("rope.freq_base", 10000.0),
            norm_eps=get("attention.layer_norm_rms_epsilon"),
            conv_kernel=get("ssm.conv_kernel"),
            d_state=get("ssm.state_size"),
            n_k=get("ssm.group_count"),
            n_v=get("ssm.time_step_rank"),
            full=full,
        )


def sigmoid(x: Real) -> Real:
    """1 / (1 + e^-x), without overflow."""
    return 0.5 * (1.0 + np.tanh(0.5 * x))


def silu(x: Real) -> Real:
    """x sigmoid(x)."""
    return x * sigmoid(x)


def softplus(x: Real) -> Real:
    """log(1 + e^x), without overflow."""
    return np.logaddexp(0.0, x)


class Model:
    """A `qwen35` model with decoded weights."""

    def __init__(
        self,
        metadata: dict[str, Any],
        weights: dict[str, Real],
        mistake: Mistake = Mistake.NONE,
    ) -> None:
        """`weights` have the output dimension first."""
        if metadata["general.architecture"] != "qwen35":
            raise ValueError(f"architecture {metadata['general.architecture']}")
        self.metadata = metadata
        self.weights = weights
        self.mistake = mistake
        self.contract: Contract = read_contract(
            metadata, {name: values.shape[::-1] for name, values in weights.items()}
        )
        self.shape = Shape.from_metadata(metadata, set(weights))

    @classmethod
    def load(cls, path: pathlib.Path, mistake: Mistake = Mistake.NONE) -> Model:
        """Read a GGUF file."""
        metadata, tensors = gguf_file.read(path)
        weights = {name: tensor.decode() for name, tensor in tensors.items()}
        return cls(metadata, weights, mistake)

    # -- pieces ---------------------------------------------------------------------------------

    def norm(self, x: Real, name: str) -> Real:
        """Root-mean-square norm over the last dimension, with the weight as stored."""
        mean = np.mean(x * x, axis=-1, keepdims=True)
        return x / np.sqrt(mean + self.shape.norm_eps) * self.weights[name]

    def rotate(self, x: Real) -> Real:
        """Turn an activation into the rotated basis (or as a mistake has it)."""
        if self.mistake is Mistake.NO_ROTATION:
            return x
        if self.mistake is Mistake.SIGNS_AFTER:
            signs = self.contract.signs
            return walsh_hadamard(x, self.contract.block) * (
                1.0 if signs is None else signs[x.shape[-1]]
            )
        return self.contract.forward(x)

    def linear(self, x: Real, name: str) -> Real:
        """Multiply by a matrix; x [n, width]."""
        if name in self.contract.folded:
            ungrouped = self.mistake in (Mistake.TILED_ORDER, Mistake.NO_ROTATION)
            grouped = self.contract.v_grouped and not ungrouped
            if grouped and name.endswith(".ssm_out.weight"):
                x = tiled_to_grouped(x, self.shape.n_k, self.shape.n_v)
            if not (name == HEAD and self.mistake is Mistake.PLAIN_HEAD):
                x = self.rotate(x)
        return x @ self.weights[name].T

    def embed(self, ids: list[int]) -> Real:
        """Look tokens up."""
        rows = self.weights[EMBEDDING][ids]
        skip = self.mistake in (Mistake.NO_INVERSE, Mistake.NO_ROTATION)
        if not self.contract.latent_embedding or skip:
            return rows
        if self.mistake is Mistake.SIGNS_AFTER:  # the two orders exchanged
            return self.contract.forward(rows)
        return self.contract.inverse(rows)

    def head(self, x: Real) -> Real:
        """Logits of hidden states after the output norm."""
        if HEAD in self.weights:
            return self.linear(x, HEAD)
        if self.contract.latent_embedding and self.mistake is not Mistake.PLAIN_HEAD:
            x = self.rotate(x)
        return x @ self.weights[EMBEDDING].T

    # -- layers ---------------------------------------------------------------------------------

    def rotary(self, x: Real) -> Real:
        """Turn pairs (j, j + n_rot / 2) of each head; x [n, heads, head_dim]."""
        half = self.shape.n_rot // 2
        rates = self.shape.rope_base ** (-2.0 * np.arange(half) / self.shape.n_rot)
        angles = np.arange(len(x))[:, None, None] * rates
        cos, sin = np.cos(angles), np.sin(angles)
        out = x.copy()
        out[..., :half] = x[..., :half] * cos - x[..., half : 2 * half] * sin
        out[..., half : 2 * half] = x[..., :half] * sin + x[..., half : 2 * half] * cos
        return out

    def full_attention(self, h: Real, layer: str) -> Real:
        """Gated attention over normalised inputs h [n, d_model]."""
        s, n = self.shape, len(h)
        both = self.linear(h, f"{layer}.attn_q.weight").reshape(n, s.n_head, 2, s.head_dim)
        q, gate = both[:, :, 0], both[:, :, 1]
        k = self.linear(h, f"{layer}.attn_k.weight").reshape(n, s.n_head_kv, s.head_dim)
        v = self.linear(h, f"{layer}.attn_v.weight").reshape(n, s.n_head_kv, -1)
        q = self.rotary(self.norm(q, f"{layer}.attn_q_norm.weight"))
        k = self.rotary(self.norm(k, f"{layer}.attn_k_norm.weight"))
        out = np.empty((n, s.n_head, v.shape[-1]))
        for head in range(s.n_head):
            kv = head // (s.n_head // s.n_head_kv)
            scores = q[:, head] @ k[:, kv].T / np.sqrt(s.head_dim)
            scores[np.triu_indices(n, 1)] = -np.inf
            weights = np.exp(scores - scores.max(axis=1, keepdims=True))
            out[:, head] = weights @ v[:, kv] / weights.sum(axis=1, keepdims=True)
        return self.linear((out * sigmoid(gate)).reshape(n, -1), f"{layer}.attn_output.weight")

    def delta_net(self, h: Real, layer: str, probes: Probes | None) -> Real:
        """Gated delta rule over normalised inputs h [n, d_model]."""
        s, n = self.shape, len(h)
        d_key = s.n_k * s.d_state
        u = self.linear(h, f"{layer}.attn_qkv.weight")
        z = self.linear(h, f"{layer}.attn_gate.weight").reshape(n, s.n_v, s.d_state)
        plain = self.rotate(h) if self.mistake is Mistake.ROTATED_GATES else h
        a = self.linear(plain, f"{layer}.ssm_alpha.weight")
        b = self.linear(plain, f"{layer}.ssm_beta.weight")

        taps = self.weights[f"{layer}.ssm_conv1d.weight"]
        history = np.concatenate((np.zeros((s.conv_kernel - 1, u.shape[1])), u))
        conv = silu(sum(history[j : j + n] * taps[:, j] for j in range(s.conv_kernel)))
        q, k, v = np.split(conv, (d_key, 2 * d_key), axis=1)

        def unit(x: Real) -> Real:
            x = x.reshape(n, s.n_k, s.d_state)
            return x / np.maximum(np.linalg.norm(x, axis=-1, keepdims=True), s.norm_eps)

        key_head = np.arange(s.n_v) % s.n_k  # value heads are in tiled order
        q, k = unit(q)[:, key_head], unit(k)[:, key_head]
        v = v.reshape(n, s.n_v, s.d_state)
        beta = sigmoid(b)
        decay = np.exp(
            self.weights[f"{layer}.ssm_a"] * softplus(a + self.weights[f"{layer}.ssm_dt.bias"])
        )

        state = np.zeros((s.n_v, s.d_state, s.d_state))  # [head, value dim, key dim]
        o = np.empty_like(v)
        for t in range(n):
            state *= decay[t][:, None, None]
            error = beta[t][:, None] * (v[t] - np.einsum("hvk,hk->hv", state, k[t]))
            state += error[:, :, None] * k[t][:, None, :]
            o[t] = np.einsum("hvk,hk->hv", state, q[t])
        o /= np.sqrt(s.d_state)
        gated = self.norm(o, f"{layer}.ssm_norm.weight") * silu(z)
        if probes is not None:
            probes[f"{layer}.conv"] = conv
            probes[f"{layer}.beta"] = beta
            probes[f"{layer}.decay"] = decay
            probes[f"{layer}.delta"] = o.reshape(n, -1)
            probes[f"{layer}.gated"] = gated.reshape(n, -1)
        return self.linear(gated.reshape(n, -1), f"{layer}.ssm_out.weight")

    def forward(self, ids: list[int], probes: Probes | None = None) -> Real:
        """Return logits [n, n_vocab] for a sequence from an empty state.

        `probes` gets intermediate values, [n, width] each: the embedding, the state of the residual
        stream after every layer, and the steps of the first layer.
        """
        x = self.embed(ids)
        if probes is not None:
            probes["embedding"] = x
        for i in range(self.shape.n_layers):
            layer = f"blk.{i}"
            h = self.norm(x, f"{layer}.attn_norm.weight")
            if self.shape.full[i]:
                x = x + self.full_attention(h, layer)
            else:
                x = x + self.delta_net(h, layer, probes if i == 0 else None)
            h = self.norm(x, f"{layer}.post_attention_norm.weight")
            gate = silu(self.linear(h, f"{layer}.ffn_gate.weight"))
            up = self.linear(h, f"{layer}.ffn_up.weight")
            x = x + self.linear(gate * up, f"{layer}.ffn_down.weight")
            if probes is not None:
                probes[f"{layer}.out"] = x
        return self.head(self.norm(x, "output_norm.weight"))
