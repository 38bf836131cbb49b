"""The same layers by PyTorch's own functions, in any dtype: what tests compare with."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from argus.layers.decoder import DecoderLayer, GatedMLP, Mixture


def twin(layer: DecoderLayer, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Return `layer(x, cos, sin)` with the layer's weights in x's dtype."""
    shape, weights = layer.shape, {name: p.to(x.dtype) for name, p in layer.named_parameters()}
    normed = F.rms_norm(x, (shape.hidden,), weights["norm"], shape.eps)
    projected = F.linear(normed, weights["attention.qkv"]).view(*x.shape[:2], -1, shape.features)
    q, k, v = projected.tensor_split((shape.heads, shape.heads + shape.shared_heads), dim=2)
    if shape.head_norm:
        q, k = (
            F.rms_norm(t, (shape.features,), weights[f"attention.{name}_norm"], shape.eps)
            for t, name in ((q, "q"), (k, "k"))
        )
    q, k, v = (t.transpose(1, 2) for t in (_turned(q, cos, sin), _turned(k, cos, sin), v))
    repeats = shape.heads // shape.shared_heads
    k, v = (t.repeat_interleave(repeats, dim=1) for t in (k, v))
    found = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    x = x + F.linear(found.transpose(1, 2).flatten(2), weights["attention.out"])
    normed = F.rms_norm(x, (shape.hidden,), weights["mlp_norm"], shape.eps)
    more = _mlp if isinstance(layer.mlp, GatedMLP) else _mixture
    return x + more(layer, normed, weights)


def _turned(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    c, s = cos.to(x.dtype)[:, None], sin.to(x.dtype)[:, None]
    first, second = x.chunk(2, dim=-1)
    return torch.cat([first * c - second * s, second * c + first * s], dim=-1)


def _mlp(_layer: DecoderLayer, x: torch.Tensor, weights: dict[str, torch.Tensor]) -> torch.Tensor:
    gate, up = F.linear(x, weights["mlp.gate_up"]).chunk(2, dim=-1)
    return F.linear(F.silu(gate) * up, weights["mlp.down"])


def _mixture(layer: DecoderLayer, x: torch.Tensor, weights: dict[str, torch.Tensor]) -> torch.Tensor:
    assert isinstance(layer.mlp, Mixture)
    scores, chosen = F.linear(x, weights["mlp.router"]).softmax(-1).topk(layer.mlp.chosen)
    scores = scores / scores.sum(-1, keepdim=True)
    gate, up = torch.einsum("btkih,bth->btki", weights["mlp.gate_up"][chosen], x).chunk(2, dim=-1)
    return torch.einsum("btk,btkhi,btki->bth", scores, weights["mlp.down"][chosen], F.silu(gate) * up)
