"""Which operators a graph is decomposed into before it is partitioned: PyTorch's core operators, and norms in parts.

The table of operators then has sums, means and variances, which join with what stands before and after them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

aten = torch.ops.aten

PARTS = (
    aten.native_group_norm,
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
    found[aten.lift_fresh_copy.default] = torch.clone
    return found


def _extremum(value: Any, place: Any) -> Callable[..., Any]:
    """`max` and `min` along a dimension: the extremum, and where it is, of which a graph often needs only one."""

    def decomposed(x: Any, dim: int, keepdim: bool = False) -> tuple[Any, Any]:
        return value(x, [dim], keepdim), place(x, dim, keepdim)

    return decomposed
