"""Cut a reduction that has too few programs, or whose rows do not fit registers, into two steps."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, prod
from typing import Any

import torch

from argus.graph.tiles import MOST_HELD
from argus.ir.machine import H200

_BLOCKS = 8 * H200.multiprocessors
"""Number of programs at which a reduction fills a GPU: eight for each multiprocessor of the largest GPU."""
_MOST_PARTS = 512
"""Number of parts that the second step adds up at once. A dimension is cut if it would make more."""
_FEW_TERMS, LEAST_PART, _ACROSS = 4096, 32, 64
"""Number of terms up to which a sum needs no second kernel; smallest length of a part; columns of a tile whose rows are
summed."""


def dims_of(x: Any, dims: Any) -> list[int]:
    """Return the dimensions that a reduction names, counted from the first one, in order."""
    given = [dims] if isinstance(dims, int) else list(dims or range(x.dim()))
    return sorted(d % x.dim() for d in given) if x.dim() else []


def in_programs(x: Any, dims: Sequence[int]) -> tuple[Any, list[int], list[int]] | None:
    """Return a view of x, the dimensions to reduce first, and those to reduce second in the result of the first step.

    Return None if a reduction in one step has enough programs, or if no such split is found.
    """
    if not dims or not all(isinstance(size, int) for size in x.shape):
        return None
    sizes = [x.shape[d] for d in dims]
    outs = max(prod(x.shape) // max(prod(sizes), 1), 1)
    blocks = outs if dims[-1] == x.dim() - 1 else ceil(outs / _ACROSS)
    if prod(sizes) < _FEW_TERMS or 2 * blocks >= _BLOCKS:
        return None
    wanted, outer = ceil(_BLOCKS / blocks), 1
    for place, d in enumerate(dims):
        left = prod(sizes[place:])
        if outer >= wanted and left >= LEAST_PART:
            return x, list(dims[place:]), list(dims[:place])
        parts = outer * x.shape[d]
        if parts >= wanted and (parts > _MOST_PARTS or left // x.shape[d] < LEAST_PART):
            part = _divisor(x.shape[d], ceil(wanted / outer), left)
            if part is not None and part < x.shape[d]:
                split = x.reshape(*x.shape[:d], part, x.shape[d] // part, *x.shape[d + 1 :])
                return split, [d + 1, *(e + 1 for e in dims[place + 1 :])], [*dims[:place], d]
        outer = parts
    return None


def _divisor(size: int, least: int, terms: int) -> int | None:
    """Return the number of equal parts to cut a dimension into: the smallest number that is at least `least`, or else
    the largest. `terms`: the elements to reduce along this dimension and those after it.

    A part has at least `LEAST_PART` elements. Return None if there is no such number.
    """
    found = [n for n in range(2, min(size, terms // LEAST_PART) + 1) if size % n == 0]
    return next((n for n in found if n >= least), found[-1] if found else None)


def in_rows(x: Any, dims: Sequence[int]) -> tuple[Any, list[int], list[int]] | None:
    """Return a view of x and its dimensions like `in_programs`, with rows of the first step that fit registers.

    Return None if the rows of a reduction in one step fit, or if there is no such view.
    """
    if not dims or dims[-1] != x.dim() - 1 or not all(isinstance(size, int) for size in x.shape):
        return None
    if prod(x.shape[d] for d in dims) <= MOST_HELD:
        return None
    length, place = 1, len(dims)
    while place and length * x.shape[dims[place - 1]] <= MOST_HELD:
        place -= 1
        length *= x.shape[dims[place]]
    d = dims[place - 1]
    size = x.shape[d]
    part = next((n for n in range(MOST_HELD // length, 1, -1) if size % n == 0), 1)
    if length * part < LEAST_PART * 4:
        return None
    if part == 1:
        return x, list(dims[place:]), list(dims[:place])
    split = x.reshape(*x.shape[:d], size // part, part, *x.shape[d + 1 :])
    return split, [d + 1, *(e + 1 for e in dims[place:])], list(dims[:place])


def kept(x: Any, dims: Sequence[int], keep: bool) -> list[int]:
    """Return the shape of a reduction's result."""
    return [1 if d in dims else size for d, size in enumerate(x.shape) if keep or d not in dims]


def wide(x: Any) -> Any:
    """Convert floats of 16 bits to float32, in which reductions compute."""
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
