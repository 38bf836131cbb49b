"""Which operators a graph is decomposed into before it is partitioned: PyTorch's core operators, and norms in parts.

The table of operators then has sums, means and variances, which join with what stands before and after them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

aten = torch.ops.aten

PARTS = (
    aten.native_group_norm_backward,
    aten._native_batch_norm_legit,
    aten._native_batch_norm_legit_functional,
    aten._native_batch_norm_legit_no_training,
    aten._batch_norm_with_update_functional,
    aten.native_batch_norm,
    aten.native_batch_norm_backward,
    aten.native_layer_norm_backward,
)


def decompositions() -> dict[Any, Callable[..., Any]]:
    """The decompositions by operator."""
    from torch._decomp import core_aten_decompositions, get_decompositions

    found: dict[Any, Callable[..., Any]] = dict(core_aten_decompositions())
    found |= get_decompositions(PARTS)
    found[aten.max.dim] = _extremum(aten.amax, aten.argmax)
    found[aten.min.dim] = _extremum(aten.amin, aten.argmin)
    found[aten.native_group_norm.default] = _group_norm
    found[aten.mm.default] = _matrix_and_vector
    found[aten.lift_fresh_copy.default] = torch.clone
    return found


def _group_norm(
    x: Any, weight: Any, bias: Any, images: int, channels: int, inner: int, groups: int, eps: float
) -> tuple[Any, Any, Any]:
    """A group norm by the mean and the variance of each group, in float32."""
    wide = x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
    shape = (images, groups, channels // groups, inner)
    parts = wide.reshape(shape)
    variance, mean = torch.var_mean(parts, [2, 3], correction=0, keepdim=True)
    inverse = torch.rsqrt(variance + eps)
    value = (parts - mean) * inverse
    for parameter, op in ((weight, torch.mul), (bias, torch.add)):
        if parameter is not None:
            value = op(value, parameter.reshape(1, groups, channels // groups, 1))
    made = value.reshape(x.shape).to(x.dtype)
    return made, *(v.reshape(images, groups).to(x.dtype) for v in (mean, inverse))


def _matrix_and_vector(a: Any, b: Any) -> Any:
    """A product with one row or one column is a sum along rows."""
    if a.shape[0] != 1 and b.shape[1] != 1:
        return NotImplemented
    wide = [x.float() if x.dtype in (torch.float16, torch.bfloat16) else x for x in (a, b)]
    if b.shape[1] == 1:
        found = (wide[0] * wide[1].reshape(1, -1)).sum(1, keepdim=True)
    else:
        found = (wide[1] * wide[0].reshape(-1, 1)).sum(0, keepdim=True)
    return found.to(a.dtype)


def _extremum(value: Any, place: Any) -> Callable[..., Any]:
    """`max` and `min` along a dimension: the extremum, and where it is, of which a graph often needs only one."""

    def decomposed(x: Any, dim: int, keepdim: bool = False) -> tuple[Any, Any]:
        return value(x, [dim], keepdim), place(x, dim, keepdim)

    return decomposed
