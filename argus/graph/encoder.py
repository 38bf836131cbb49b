"""Attention and encoder layers that PyTorch runs as one operator, as the operators that they consist of.

    _transformer_encoder_layer_fwd(x, ...)         →  norms, linear layers, attention, and an activation
    scaled_dot_product_attention of float32        →  softmax(q @ k.T * scale) @ v

PyTorch runs an encoder layer as one operator in inference. Its attention goes through scores in memory, as here.
Attention of float32 is written out only where its scores stay in the cache of a GPU.
"""

from __future__ import annotations

from math import prod, sqrt
from typing import Any

import torch

_MOST_BYTES = 2**25
"""Bytes of scores that stay in the L2 cache beside other tensors."""


def encoder_layer(
    x: Any, width: int, heads: int, qkv: Any, qkv_bias: Any, out: Any, out_bias: Any, gelu: bool, norm_first: bool,
    eps: float, norm1: Any, norm1_bias: Any, norm2: Any, norm2_bias: Any, inner: Any, inner_bias: Any, outer: Any,
    outer_bias: Any, mask: Any = None, mask_type: Any = None,
) -> Any:  # fmt: skip
    """Return the result of an encoder layer without a mask."""
    if mask is not None or x.dim() != 3:
        return NotImplemented
    linear, activation = torch.nn.functional.linear, torch.nn.functional.gelu if gelu else torch.relu

    def norm(y: Any, weight: Any, bias: Any) -> Any:
        return torch.nn.functional.layer_norm(y, (width,), weight, bias, eps)

    def attended(y: Any) -> Any:
        parts = linear(y, qkv, qkv_bias).reshape(*y.shape[:2], 3, heads, width // heads).permute(2, 0, 3, 1, 4)
        q, k, v = parts.unbind(0)
        found = attention(q, k, v)
        return linear(found.transpose(1, 2).reshape(y.shape), out, out_bias)

    def fed(y: Any) -> Any:
        return linear(activation(linear(y, inner, inner_bias)), outer, outer_bias)

    if norm_first:
        x = x + attended(norm(x, norm1, norm1_bias))
        return x + fed(norm(x, norm2, norm2_bias))
    x = norm(x + attended(x), norm1, norm1_bias)
    return norm(x + fed(x), norm2, norm2_bias)


def attention(q: Any, k: Any, v: Any, scale: float | None = None, causal: bool = False) -> Any:
    """Return attention by a product, a softmax and a product. With `causal`, query i sees the keys up to i."""
    scores = torch.matmul(q, k.mT) * (1 / sqrt(q.shape[-1]) if scale is None else scale)
    if causal:
        places = [torch.arange(n, device=q.device) for n in scores.shape[-2:]]
        scores = torch.where(places[0][:, None] >= places[1], scores, -float("inf"))
    return torch.matmul(torch.softmax(scores, -1), v)


def is_written_out(q: Any, k: Any, v: Any) -> bool:
    """Return True for attention of float32 whose scores are few, where products may use TF32."""
    if any(x.dim() != 4 or x.dtype != torch.float32 for x in (q, k, v)) or q.shape[:2] != k.shape[:2]:
        return False
    if k.shape != v.shape or not all(isinstance(n, int) and n > 1 for x in (q, k) for n in x.shape[2:]):
        return False
    multiplied = q.device.type != "cuda" or torch.backends.cuda.matmul.allow_tf32
    return bool(multiplied and 4 * prod(q.shape[:3]) * k.shape[2] <= _MOST_BYTES)
