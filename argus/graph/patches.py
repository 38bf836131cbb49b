"""Convolutions whose windows divide the image become products of patches: the first layer of a vision transformer.

    conv2d(x, w, b, stride=16)  →  linear(patches of x, w.flatten(1), b), seen with channels as the second dimension

The product is computed, and differentiated, as every other one. The result has its channels last in memory.
"""

from __future__ import annotations

from math import prod
from typing import Any

import torch

_SHORT = (torch.float16, torch.bfloat16)
_ORDER = ("input", "weight", "bias", "stride", "padding", "dilation", "groups")
_DEFAULTS = (None, None, None, 1, 0, 1, 1)
_PLAIN = frozenset((torch.conv1d, torch.conv2d, torch.conv3d))


def multiply_patches(graph: torch.fx.Graph, node: torch.fx.Node) -> bool:
    """Replace a convolution of 16-bit floats whose windows neither overlap nor leave gaps. Return False if it is none.
    """
    given = dict(zip(_ORDER, _DEFAULTS, strict=True)) | dict(zip(_ORDER, node.args, strict=False)) | node.kwargs
    x, weight = (_tensor(given[name]) for name in _ORDER[:2])
    if node.target not in _PLAIN or x is None or weight is None or not _divides(x, weight, given):
        return False
    with graph.inserting_before(node):
        made = graph.call_function(_product, (given["input"], given["weight"], given["bias"]))
    made.meta = dict(node.meta)
    node.replace_all_uses_with(made)
    graph.erase_node(node)
    return True


def _tensor(argument: Any) -> torch.Tensor | None:
    found = argument.meta.get("example_value") if isinstance(argument, torch.fx.Node) else None
    return found if isinstance(found, torch.Tensor) else None


def _divides(x: torch.Tensor, weight: torch.Tensor, given: dict[str, Any]) -> bool:
    taps = weight.shape[2:]
    if x.dtype not in _SHORT or weight.dtype != x.dtype or x.ndim != weight.ndim or given["groups"] != 1:
        return False
    if not all(isinstance(size, int) for size in (*x.shape, *weight.shape)) or prod(taps) == 1 or x.numel() == 0:
        return False
    stride, padding, dilation = (_each(given[name], len(taps)) for name in ("stride", "padding", "dilation"))
    whole = all(size % tap == 0 for size, tap in zip(x.shape[2:], taps, strict=True))
    return whole and stride == tuple(taps) and not any(padding) and set(dilation) == {1}


def _each(value: Any, count: int) -> tuple[Any, ...]:
    """Return a parameter for each dimension. A name, as "same", is not 0."""
    given = tuple(value) if isinstance(value, (tuple, list)) else (value,)
    return given * count if len(given) == 1 else given


def _product(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    taps = weight.shape[2:]
    count = len(taps)
    cut = x.reshape(*x.shape[:2], *(n for size, tap in zip(x.shape[2:], taps, strict=True) for n in (size // tap, tap)))
    places, within = [2 + 2 * d for d in range(count)], [3 + 2 * d for d in range(count)]
    if x.stride(1) == 1:  # channels last: whole pixels are copied
        order, filters = [*within, 1], weight.movedim(1, -1)
    else:
        order, filters = [1, *within], weight
    patches = cut.permute(0, *places, *order).flatten(1 + count)
    return torch.nn.functional.linear(patches, filters.flatten(1), bias).movedim(-1, 1)
