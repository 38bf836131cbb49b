"""The decoder layers by PyTorch's own functions, in any dtype: what tests and benchmarks compare with."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F

from argus.layers.decoder import DecoderLayer, GatedMLP, Mixture

Weights = dict[str, torch.Tensor]


def twin(layer: DecoderLayer, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Return `layer(x, cos, sin)`, `[B, T, hidden]`, computed by PyTorch with all weights in x's dtype."""
    weights = _weights(layer, x)
    q, k, v = _projected(layer, weights, x, cos, sin)
    found = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=q.shape[1] != k.shape[1])
    return _rest(layer, weights, x, found)


def twin_step(
    layer: DecoderLayer, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, keys: torch.Tensor, values: torch.Tensor
) -> torch.Tensor:
    """Return `layer.step`, computed by PyTorch in x's dtype, for sequences of the same length L.

    `keys` and `values` `[B, heads, L, features]`, in x's dtype, hold all tokens. Those of the new token, the last, are
    written. `cos` and `sin` are `[B, features / 2]`.
    """
    weights = _weights(layer, x)
    q, k, v = _projected(layer, weights, x, cos[:, None], sin[:, None])
    keys[:, :, -1:], values[:, :, -1:] = k, v
    found = F.scaled_dot_product_attention(q, keys, values, enable_gqa=q.shape[1] != k.shape[1])
    return _rest(layer, weights, x, found)


def _weights(layer: DecoderLayer, x: torch.Tensor) -> Weights:
    return {name: p.to(x.dtype) for name, p in layer.named_parameters()}


def _projected(
    layer: DecoderLayer, weights: Weights, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor
) -> tuple[torch.Tensor, ...]:
    """Return queries, keys and values `[B, heads, T, features]`, turned by angles `[T, e]` or `[B, T, e]`."""
    shape = layer.shape
    normed = F.rms_norm(x, (shape.hidden,), weights["norm"], shape.eps)
    projected = F.linear(normed, weights["attention.qkv"]).view(*x.shape[:2], -1, shape.features)
    q, k, v = projected.tensor_split((shape.heads, shape.heads + shape.shared_heads), dim=2)
    if shape.head_norm:
        q, k = (
            F.rms_norm(t, (shape.features,), weights[f"attention.{name}_norm"], shape.eps)
            for t, name in ((q, "q"), (k, "k"))
        )
    return tuple(t.transpose(1, 2) for t in (_turned(q, cos, sin), _turned(k, cos, sin), v))


def _turned(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    c, s = cos.to(x.dtype).unsqueeze(-2), sin.to(x.dtype).unsqueeze(-2)
    first, second = x.chunk(2, dim=-1)
    return torch.cat([first * c - second * s, second * c + first * s], dim=-1)


def _rest(layer: DecoderLayer, weights: Weights, x: torch.Tensor, found: torch.Tensor) -> torch.Tensor:
    """Return the layer's result, of what its tokens `x` found by attention, `[B, heads, T, features]`."""
    x = x + F.linear(found.transpose(1, 2).flatten(2), weights["attention.out"])
    normed = F.rms_norm(x, (layer.shape.hidden,), weights["mlp_norm"], layer.shape.eps)
    more: Callable[..., torch.Tensor] = _mlp if isinstance(layer.mlp, GatedMLP) else _mixture
    return x + more(layer, normed, weights)


def _mlp(_layer: DecoderLayer, x: torch.Tensor, weights: Weights) -> torch.Tensor:
    gate, up = F.linear(x, weights["mlp.gate_up"]).chunk(2, dim=-1)
    return F.linear(F.silu(gate) * up, weights["mlp.down"])


def _mixture(layer: DecoderLayer, x: torch.Tensor, weights: Weights) -> torch.Tensor:
    assert isinstance(layer.mlp, Mixture)
    scores, chosen = F.linear(x, weights["mlp.router"]).softmax(-1).topk(layer.mlp.chosen)
    scores = scores / scores.sum(-1, keepdim=True)
    experts = _by_group if x.is_cuda and x.dtype == torch.bfloat16 else _by_expert
    return experts(x, scores, chosen, weights["mlp.gate_up"], weights["mlp.down"])


def _by_expert(
    x: torch.Tensor, scores: torch.Tensor, chosen: torch.Tensor, gate_up: torch.Tensor, down: torch.Tensor
) -> torch.Tensor:
    """Compute one expert after the other, each with its own tokens."""
    result = torch.zeros_like(x)
    for expert in range(len(gate_up)):
        place = (chosen == expert).nonzero(as_tuple=True)
        gate, up = F.linear(x[place[:-1]], gate_up[expert]).chunk(2, dim=-1)
        part = F.linear(F.silu(gate) * up, down[expert]) * scores[place][:, None]
        result = result.index_put(place[:-1], part, accumulate=True)
    return result


def _by_group(
    x: torch.Tensor, scores: torch.Tensor, chosen: torch.Tensor, gate_up: torch.Tensor, down: torch.Tensor
) -> torch.Tensor:
    """Sort rows by expert, for PyTorch's grouped product (bfloat16, sm_90)."""
    rows, choices = x.flatten(0, 1), chosen.flatten()
    order = choices.argsort(stable=True)
    token = order // chosen.shape[-1]
    ends = torch.searchsorted(choices[order], torch.arange(len(gate_up), device=x.device), right=True).int()
    gate, up = torch._grouped_mm(rows[token], gate_up.mT, offs=ends).chunk(2, dim=-1)
    parts = torch._grouped_mm(F.silu(gate) * up, down.mT, offs=ends) * scores.flatten()[order, None]
    return torch.zeros_like(rows).index_add_(0, token, parts).view(x.shape)
