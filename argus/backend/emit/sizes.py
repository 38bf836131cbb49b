"""Lower bounds of sizes from preconditions, which every launch checks. They make some masks unnecessary."""

from __future__ import annotations

from collections.abc import Iterator

from argus.ir.expr import Const, Expr, Op, Param
from argus.ir.nodes import Kernel, Requires
from argus.ir.types import boolean


def least(kernel: Kernel) -> dict[str, int]:
    """Return the least value of each size that a precondition such as `requires(size >= n)` bounds from below."""
    found: dict[str, int] = {}
    for precondition in kernel.preconditions:
        if isinstance(precondition, Requires):
            for name, value in _bounds(precondition.cond):
                found[name] = max(value, found.get(name, value))
    return found


def _bounds(cond: Expr) -> Iterator[tuple[str, int]]:
    match cond:
        case Op(op="and", args=(x, y), dtype=dtype) if dtype is boolean:
            yield from _bounds(x)
            yield from _bounds(y)
        case Op(op="ge", args=(Param(name=name), Const(value=n))):
            yield name, int(n)
        case Op(op="le", args=(Const(value=n), Param(name=name))):
            yield name, int(n)
        case Op(op="gt", args=(Param(name=name), Const(value=n))):
            yield name, int(n) + 1
        case Op(op="lt", args=(Const(value=n), Param(name=name))):
            yield name, int(n) + 1
        case _:
            return
