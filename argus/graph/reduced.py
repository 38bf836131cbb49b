"""Dimensions of reductions: those over which an operator reduces, and those of its results."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from argus.graph.operators import name_of
from argus.graph.row import normal
from argus.graph.space import Dims, Mismatch

if TYPE_CHECKING:
    from torch.fx import Node


BACKWARDS = frozenset(("cumsum_backwards.default",))
"""Operators with one result for each element, computed from all elements from it on."""

SCANS = frozenset(("cumsum.default", "cumprod.default")) | BACKWARDS
"""Operators with one result for each element, computed from all elements up to it, or from it on."""


def reduced_dims(node: Node, arguments: tuple[Any, ...], rank: int) -> tuple[tuple[int, ...], bool]:
    """Return the dimensions of its first argument over which a reduction reduces, and whether its results keep them."""
    match name_of(node.target):
        case "sum.dim_IntList" | "mean.dim" | "amax.default" | "amin.default" as op:
            dims, keep = arguments[1], bool(arguments[2])
            everything = dims is None or len(dims) == 0
            return tuple(range(rank)) if everything else tuple(sorted(normal(d, rank) for d in dims)), keep
        case "var.correction" | "var_mean.correction":
            dims = arguments[1]
            every = dims is None or len(dims) == 0
            return (tuple(range(rank)) if every else tuple(sorted(normal(d, rank) for d in dims))), bool(arguments[3])
        case "linalg_vector_norm.default":
            dims = arguments[2]
            return tuple(range(rank)) if dims is None else tuple(sorted(normal(d, rank) for d in dims)), bool(
                arguments[3]
            )
        case "native_layer_norm.default":
            return tuple(range(rank - len(arguments[1]), rank)), True
        case "_softmax.default" | "_log_softmax.default":
            return (normal(arguments[1], rank),), True
        case "_softmax_backward_data.default" | "_log_softmax_backward_data.default":
            return (normal(arguments[2], rank),), True
        case "cumsum.default" | "cumprod.default" | "cumsum_backwards.default":
            return (normal(arguments[1], rank),), True
        case "argmax.default" | "argmin.default":
            if arguments[1] is None and rank != 1:
                raise Mismatch("the place of an extremum in several dimensions")
            return (normal(arguments[1] or 0, rank),), bool(arguments[2])
        case "prod.dim_int":
            return (normal(arguments[1], rank),), bool(arguments[2])
        case op:
            assert op in ("sum.default", "mean.default", "max.default", "min.default", "prod.default"), op
            return tuple(range(rank)), False


def result_dims(node: Node, x: Dims, without: Dims) -> tuple[Dims, ...]:
    """Return the dimensions of each result of a reduction of `x`. `without` drops the reduced dimensions."""
    match name_of(node.target):
        case "native_layer_norm.default":
            return x, without, without
        case op if "softmax" in op or op in SCANS:
            return (x,)
        case "var_mean.correction":
            return without, without
        case _:
            return (without,)
