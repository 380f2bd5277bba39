"""A small hybrid language model with ternary weights in a rotated basis, for training.

The block is that of the `qwen35` architecture: three layers of gated delta rule, then one of gated
full attention. Every large matrix is kept as real-valued *latent* weights and used as its ternary
form: groups of 128 along the input, one binary16 scale (the mean magnitude of the group) and codes
-1, 0, +1. The gradient passes the rounding unchanged (straight-through).

The ternary matrix W' lives in the rotated basis: it multiplies R x, R = H S, where S flips signs
and H is the normalised Walsh-Hadamard matrix of each block. W' (R x) = (W' R) x, so the forward
pass rotates the matrix once per step in place of every activation: the same function, less work.
The embedding is stored rotated too (e = S H z).

Value heads are in *grouped* order here: value head p belongs to key head p // rep.
"""

from __future__ import annotations

import dataclasses
import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

GROUP = 128
MIN_SCALE = 1e-4


@dataclasses.dataclass(frozen=True)
class Config:
    """Shape of the model."""

    n_vocab: int = 1024
    d_model: int = 128
    d_ff: int = 384
    n_layers: int = 4
    interval: int = 4
    n_head: int = 4
    n_head_kv: int = 2
    head_dim: int = 64
    n_rot: int = 16
    rope_base: float = 10000.0
    n_k: int = 4
    n_v: int = 8
    d_state: int = 32
    conv_kernel: int = 4
    norm_eps: float = 1e-6
    n_ctx: int = 1024
    block: int = 128
    sign_seed: int = 20261130

    @property
    def d_inner(self) -> int:
        """Width of all value heads together."""
        return self.n_v * self.d_state

    @property
    def d_key(self) -> int:
        """Width of all key heads together."""
        return self.n_k * self.d_state

    @property
    def d_conv(self) -> int:
        """Channels of the causal convolution."""
        return 2 * self.d_key + self.d_inner

    def is_full(self, layer: int) -> bool:
        """Whether a layer has full attention."""
        return (layer + 1) % self.interval == 0

    def sign_widths(self) -> list[int]:
        """Widths of the inputs of rotated matrices."""
        return sorted({self.d_model, self.d_ff, self.d_inner, self.n_head * self.head_dim})


def hadamard(block: int) -> Tensor:
    """Return the normalised Sylvester matrix of one block."""
    matrix = torch.ones(1, 1)
    while matrix.shape[0] < block:
        matrix = torch.cat((torch.cat((matrix, matrix), 1), torch.cat((matrix, -matrix), 1)), 0)
    return matrix / math.sqrt(block)


def make_signs(config: Config) -> dict[int, Tensor]:
    """Draw the sign vector of each width."""
    generator = torch.Generator().manual_seed(config.sign_seed)
    return {
        width: torch.randint(0, 2, (width,), generator=generator).float() * 2 - 1
        for width in config.sign_widths()
    }


def ternary_parts(latent: Tensor) -> tuple[Tensor, Tensor]:
    """Return codes in {-1, 0, 1} [out, in/128, 128] and binary16 scales [out, in/128, 1]."""
    groups = latent.reshape(latent.shape[0], -1, GROUP)
    scale = groups.abs().mean(-1, keepdim=True).clamp(min=MIN_SCALE).half().float()
    return (groups / scale).round().clamp(-1, 1), scale


class Rotated(nn.Module):
    """A ternary matrix in the rotated basis; `forward` returns it in the ordinary basis."""

    def __init__(self, d_in: int, d_out: int, std: float, signs: Tensor, h: Tensor) -> None:
        super().__init__()
        self.latent = nn.Parameter(torch.randn(d_out, d_in) * std)
        self.register_buffer("signs", signs, persistent=False)
        self.register_buffer("h", h, persistent=False)

    def forward(self) -> Tensor:
        """Return the matrix [out, in] that multiplies an unrotated activation."""
        codes, scale = ternary_parts(self.latent.detach())
        rounded = (codes * scale).view_as(self.latent)
        ternary = self.latent + (rounded - self.latent.detach())
        block = self.h.shape[0]
        unrotated = ternary.view(-1, block) @ self.h
        return unrotated.view_as(self.latent) * self.signs


class RmsNorm(nn.Module):
    """Root-mean-square norm with a weight."""

    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        """Normalise the last dimension."""
        return F.rms_norm(x, (x.shape[-1],), self.weight, self.eps)


def delta_rule(q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor, chunk: int) -> Tensor:
    """Gated delta rule in chunks.

    q, k: [B, K, T, d] (normalised); v: [B, K, R, T, d]; g, beta: [B, K, R, T]; T a multiple of
    `chunk`. Returns [B, K, R, T, d].
    """
    n_batch, n_k, rep, n_tokens, d = v.shape
    n_chunks = n_tokens // chunk
    q = q.view(n_batch, n_k, 1, n_chunks, chunk, d) * d**-0.5
    k = k.view(n_batch, n_k, 1, n_chunks, chunk, d)
    v = v.reshape(n_batch, n_k, rep, n_chunks, chunk, d)
    beta = beta.reshape(n_batch, n_k, rep, n_chunks, chunk, 1)
    total = g.reshape(n_batch, n_k, rep, n_chunks, chunk).cumsum(-1)
    above = torch.ones(chunk, chunk, dtype=torch.bool, device=v.device).triu(1)
    decay = (total.unsqueeze(-1) - total.unsqueeze(-2)).masked_fill(above, -math.inf).exp()
    total = total.unsqueeze(-1)

    system = beta * decay * (k @ k.transpose(-1, -2))
    right = torch.cat((beta * v, beta * total.exp() * k), -1)
    solved = torch.linalg.solve_triangular(system, right, upper=False, unitriangular=True)
    from_values, from_state = solved.split(d, -1)
    within = decay * (q @ k.transpose(-1, -2))
    grown = total.exp()
    last = total[..., -1:, :]
    per_chunk = (
        from_values,
        from_state,
        within,
        q * grown,
        k * (last - total).exp(),
        last.exp(),
    )

    state = v.new_zeros(n_batch, n_k, rep, d, d)
    outputs = []
    for values, from_state_c, within_c, q_c, k_c, decay_c in zip(
        *(t.unbind(3) for t in per_chunk), strict=True
    ):
        update = values - from_state_c @ state
        outputs.append(q_c @ state + within_c @ update)
        state = state * decay_c + k_c.mT @ update
    return torch.stack(outputs, 3).view(n_batch, n_k, rep, n_tokens, d)


class DeltaNet(nn.Module):
    """The gated delta-rule mixer."""

    CHUNK = 32

    def __init__(self, c: Config, rotated: Maker) -> None:
        super().__init__()
        self.c = c
        out_std = c.d_inner**-0.5 / math.sqrt(2 * c.n_layers)
        self.qkv = rotated(c.d_model, c.d_conv)
        self.z = rotated(c.d_model, c.d_inner)
        self.out = rotated(c.d_inner, c.d_model, out_std)
        self.alpha = nn.Parameter(torch.randn(c.n_v, c.d_model) * 0.02)
        self.beta = nn.Parameter(torch.randn(c.n_v, c.d_model) * 0.02)
        conv = torch.randn(c.d_conv, c.conv_kernel) * 0.2
        conv[:, -1] += 0.7
        self.conv = nn.Parameter(conv)
        # Decays per token between about 0.999 and 0.6 at the start.
        self.a_log = nn.Parameter(torch.linspace(math.log(0.5), math.log(8.0), c.n_v))
        self.dt_bias = nn.Parameter(torch.full((c.n_v,), -3.0))
        self.norm = RmsNorm(c.d_state, c.norm_eps)

    def forward(self, x: Tensor) -> Tensor:
        """Mix a normalised sequence [B, T, d_model]."""
        c = self.c
        n_batch, n_tokens, _ = x.shape
        rep = c.n_v // c.n_k
        u = F.linear(x, self.qkv())
        padded = F.pad(u, (0, 0, c.conv_kernel - 1, 0))
        mixed = padded[:, :n_tokens] * self.conv[:, 0]
        for tap in range(1, c.conv_kernel):
            mixed = torch.addcmul(mixed, padded[:, tap : tap + n_tokens], self.conv[:, tap])
        mixed = F.silu(mixed)
        q, k, v = mixed.split((c.d_key, c.d_key, c.d_inner), -1)
        q = F.normalize(q.view(n_batch, n_tokens, c.n_k, -1), dim=-1, eps=1e-6)
        k = F.normalize(k.view(n_batch, n_tokens, c.n_k, -1), dim=-1, eps=1e-6)
        v = v.view(n_batch, n_tokens, c.n_k, rep, -1).permute(0, 2, 3, 1, 4)
        beta = torch.sigmoid(F.linear(x, self.beta))
        g = -self.a_log.exp() * F.softplus(F.linear(x, self.alpha) + self.dt_bias)
        beta, g = (t.view(n_batch, n_tokens, c.n_k, rep).permute(0, 2, 3, 1) for t in (beta, g))
        o = delta_rule(q.transpose(1, 2), k.transpose(1, 2), v, g, beta, self.CHUNK)
        o = o.permute(0, 3, 1, 2, 4).reshape(n_batch, n_tokens, c.n_v, c.d_state)
        z = F.linear(x, self.z()).view(n_batch, n_tokens, c.n_v, c.d_state)
        gated = (self.norm(o) * F.silu(z)).reshape(n_batch, n_tokens, c.d_inner)
        return F.linear(gated, self.out())


class Attention(nn.Module):
    """Gated full attention with grouped heads and partial rotary positions."""

    def __init__(self, c: Config, rotated: Maker) -> None:
        super().__init__()
        self.c = c
        width = c.n_head * c.head_dim
        self.q = rotated(c.d_model, 2 * width)  # per head: query, then gate
        self.k = rotated(c.d_model, c.n_head_kv * c.head_dim)
        self.v = rotated(c.d_model, c.n_head_kv * c.head_dim)
        self.out = rotated(width, c.d_model, width**-0.5 / math.sqrt(2 * c.n_layers))
        self.q_norm = RmsNorm(c.head_dim, c.norm_eps)
        self.k_norm = RmsNorm(c.head_dim, c.norm_eps)

    def rotary(self, x: Tensor) -> Tensor:
        """Turn the first n_rot elements of each head; x [B, heads, T, D]."""
        c = self.c
        half = c.n_rot // 2
        rates = c.rope_base ** (-torch.arange(half, device=x.device) * 2.0 / c.n_rot)
        angles = torch.arange(x.shape[2], device=x.device)[:, None] * rates
        cos, sin = angles.cos(), angles.sin()
        a, b, rest = x.split((half, half, c.head_dim - c.n_rot), -1)
        return torch.cat((a * cos - b * sin, a * sin + b * cos, rest), -1)

    def forward(self, x: Tensor) -> Tensor:
        """Mix a normalised sequence [B, T, d_model]."""
        c = self.c
        n_batch, n_tokens, _ = x.shape
        both = F.linear(x, self.q()).view(n_batch, n_tokens, c.n_head, 2, c.head_dim)
        q, gate = both[..., 0, :], both[..., 1, :]
        k = F.linear(x, self.k()).view(n_batch, n_tokens, c.n_head_kv, c.head_dim)
        v = F.linear(x, self.v()).view(n_batch, n_tokens, c.n_head_kv, c.head_dim)
        q = self.rotary(self.q_norm(q).transpose(1, 2))
        k = self.rotary(self.k_norm(k).transpose(1, 2))
        mixed = F.scaled_dot_product_attention(
            q, k, v.transpose(1, 2), is_causal=True, enable_gqa=True
        )
        mixed = mixed.transpose(1, 2) * torch.sigmoid(gate)
        return F.linear(mixed.reshape(n_batch, n_tokens, -1), self.out())


class Layer(nn.Module):
    """Mixer and feed-forward."""

    def __init__(self, c: Config, index: int, rotated: Maker) -> None:
        super().__init__()
        self.attn_norm = RmsNorm(c.d_model, c.norm_eps)
        self.ffn_norm = RmsNorm(c.d_model, c.norm_eps)
        self.mixer = (Attention if c.is_full(index) else DeltaNet)(c, rotated)
        self.gate = rotated(c.d_model, c.d_ff)
        self.up = rotated(c.d_model, c.d_ff)
        self.down = rotated(c.d_ff, c.d_model, c.d_ff**-0.5 / math.sqrt(2 * c.n_layers))

    def forward(self, x: Tensor) -> Tensor:
        """Run the layer."""
        x = x + self.mixer(self.attn_norm(x))
        h = self.ffn_norm(x)
        return x + F.linear(F.silu(F.linear(h, self.gate())) * F.linear(h, self.up()), self.down())


class Maker:
    """Makes rotated matrices that share the signs of their width."""

    def __init__(self, c: Config) -> None:
        self.signs = make_signs(c)
        self.h = hadamard(c.block)

    def __call__(self, d_in: int, d_out: int, std: float | None = None) -> Rotated:
        """Make one matrix."""
        std = d_in**-0.5 if std is None else std
        return Rotated(d_in, d_out, std, self.signs[d_in], self.h)


class TinyModel(nn.Module):
    """The whole model."""

    def __init__(self, c: Config) -> None:
        super().__init__()
        self.c = c
        rotated = Maker(c)
        self.embedding = rotated(c.d_model, c.n_vocab, 0.1)
        self.layers = nn.ModuleList(Layer(c, i, rotated) for i in range(c.n_layers))
        self.norm = RmsNorm(c.d_model, c.norm_eps)
        self.head = rotated(c.d_model, c.n_vocab, 0.5 * c.d_model**-0.5)

    def forward(self, ids: Tensor) -> Tensor:
        """Return logits [B, T, n_vocab] for ids [B, T]."""
        x = F.embedding(ids, self.embedding())
        for layer in self.layers:
            x = layer(x)
        return F.linear(self.norm(x), self.head())
