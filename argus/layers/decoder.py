"""Decoder layers: attention with rotary positions, and a gated MLP (Llama) or a mixture of experts (Qwen3)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn

from argus.kernels import attention, attention_decode, matmul, moe, rmsnorm, rotary, silu_mul
from argus.layers.cache import PagedCache


@dataclass(frozen=True, slots=True)
class Shape:
    """The sizes of a layer, in elements: a token has `hidden`, a head has `features`, the MLP has `inner`.

    There are `heads` heads of queries, and `shared_heads` of keys and values. With `experts`, the MLP is a mixture of
    that many experts of width `inner`, and each token goes to `chosen` of them. `head_norm`: every head of queries and
    keys passes an RMSNorm before the rotary embedding. `eps` is that of all norms.
    """

    hidden: int
    inner: int
    heads: int
    shared_heads: int
    features: int = 128
    experts: int = 0
    chosen: int = 0
    head_norm: bool = False
    eps: float = 1e-6


def _weight(*shape: int) -> nn.Parameter:
    return nn.Parameter(torch.randn(shape) / shape[-1] ** 0.5)


class Attention(nn.Module):
    """Causal attention of tokens `[B, T, hidden]`. Its last product also adds the residual.

    Tokens and weights have one dtype: float16 or bfloat16. Calls raise LaunchError for what does not fit.
    """

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        rows = (shape.heads + 2 * shape.shared_heads) * shape.features
        self.qkv, self.out = _weight(rows, shape.hidden), _weight(shape.hidden, shape.heads * shape.features)
        if shape.head_norm:
            self.q_norm, self.k_norm = (nn.Parameter(torch.ones(shape.features)) for _ in range(2))

    def projected(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Return queries, keys and values `[B, T, heads, features]`, which are not rotated yet."""
        shape = self.shape
        found = matmul(x, self.qkv.t()).view(*x.shape[:2], -1, shape.features)
        q, k, v = found.tensor_split((shape.heads, shape.heads + shape.shared_heads), dim=2)
        if shape.head_norm:
            q, k = rmsnorm(q, self.q_norm, shape.eps), rmsnorm(k, self.k_norm, shape.eps)
        return q, k, v

    def forward(
        self,
        x: torch.Tensor,
        residual: torch.Tensor,
        cos: torch.Tensor,
        sin: torch.Tensor,
        cache: PagedCache | None = None,
    ) -> torch.Tensor:
        """Return `residual` plus the attention of all tokens. `x` holds the normalised tokens, and each token attends
        to those before it.

        `cos` and `sin` are `[T, features / 2]`. A `cache`, which must be empty, gets the keys and values.
        """
        q, k, v = self.projected(x)
        q, k = rotary(q, cos, sin), rotary(k, cos, sin)
        if cache is not None:
            cache.append(k, v)
        found = attention(*(t.transpose(1, 2) for t in (q, k, v)), causal=True)
        assert isinstance(found, torch.Tensor)
        return matmul(found.transpose(1, 2).flatten(2), self.out.t(), residual=residual)

    def step(
        self, x: torch.Tensor, residual: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, cache: PagedCache
    ) -> torch.Tensor:
        """Return `residual` plus the attention of one new token of each sequence, `[B, 1, hidden]`, to all tokens of
        the sequence.

        `cos` and `sin` are those of each sequence's position, `[B, features / 2]`.
        """
        q, k, v = self.projected(x.transpose(0, 1))
        cache.append(k.transpose(0, 1), v.transpose(0, 1), cos, sin)
        q = rotary(q, cos, sin).transpose(0, 1)
        found = attention_decode(q.transpose(1, 2), cache.keys, cache.values, cache.table, cache.lens)
        assert isinstance(found, torch.Tensor)
        return matmul(found.transpose(1, 2).flatten(2), self.out.t(), residual=residual)


class GatedMLP(nn.Module):
    """The MLP `down(silu(gate(x)) * up(x))` of tokens `[..., hidden]`. One product computes `gate` and `up` together.

    Tokens and weights have one dtype: float16 or bfloat16. Calls raise LaunchError for what does not fit.
    """

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.gate_up, self.down = _weight(2 * shape.inner, shape.hidden), _weight(shape.hidden, shape.inner)

    def forward(self, x: torch.Tensor, residual: torch.Tensor) -> torch.Tensor:
        """Return `residual` plus the MLP of `x`."""
        gate, up = matmul(x, self.gate_up.t()).chunk(2, dim=-1)
        return matmul(silu_mul(gate, up), self.down.t(), residual=residual)


class Mixture(nn.Module):
    """A mixture of gated MLPs. Each token goes to `chosen` of them, weighted by the normalised softmax of its logits.

    Tokens `[..., hidden]` and weights have one dtype: float16 or bfloat16. Calls raise LaunchError for what does not
    fit.
    """

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.chosen = shape.chosen
        self.router = _weight(shape.experts, shape.hidden)
        self.gate_up = _weight(shape.experts, 2 * shape.inner, shape.hidden)
        self.down = _weight(shape.experts, shape.hidden, shape.inner)

    def forward(self, x: torch.Tensor, residual: torch.Tensor) -> torch.Tensor:
        """Return `residual` plus the output of the experts for `x`."""
        rows = x.flatten(0, -2)
        logits = matmul(rows, self.router.t())
        more = residual.reshape(rows.shape)
        found: torch.Tensor = moe(rows, logits, self.gate_up, self.down, topk=self.chosen, shared=more)
        return found.view(x.shape)


class DecoderLayer(nn.Module):
    """Attention and an MLP or a mixture, each with an RMSNorm before it and a residual around it, on `[B, T, hidden]`.

    Weights are float16 or bfloat16 (`layer.bfloat16()`), and a head has 64 or 128 features.
    """

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.norm, self.mlp_norm = (nn.Parameter(torch.ones(shape.hidden)) for _ in range(2))
        self.attention = Attention(shape)
        self.mlp: nn.Module = Mixture(shape) if shape.experts else GatedMLP(shape)

    def forward(
        self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, cache: PagedCache | None = None
    ) -> torch.Tensor:
        """Return the layer's output for whole sequences, in training or, with an empty `cache`, in prefill."""
        x = self.attention(rmsnorm(x, self.norm, self.shape.eps), x, cos, sin, cache)
        found: torch.Tensor = self.mlp(rmsnorm(x, self.mlp_norm, self.shape.eps), x)
        return found

    def step(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, cache: PagedCache) -> torch.Tensor:
        """Return the output for one new token of each sequence, `[B, 1, hidden]`. The launches are the same at every
        length."""
        x = self.attention.step(rmsnorm(x, self.norm, self.shape.eps), x, cos, sin, cache)
        found: torch.Tensor = self.mlp(rmsnorm(x, self.mlp_norm, self.shape.eps), x)
        return found
