"""The masks that keep accesses inside of tensors."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from argus.ir.expr import Const, Expr, Op, conjunction, conjuncts, op
from argus.ir.nodes import Accumulate, Copy, Kernel, Stmt
from argus.ir.types import int32


def bounds(stmt: Stmt, kernel: Kernel) -> tuple[Expr, ...]:
    """Return `index < extent` for each dimension of each tensor that the copy or atomic accumulation touches."""
    if not isinstance(stmt, Copy | Accumulate):
        return ()
    accesses = (stmt.src, stmt.dst) if isinstance(stmt, Copy) else (stmt.dst,)
    extents = {t.name: t.shape for t in kernel.tensors}
    pairs = [(i, e) for a in accesses for i, e in zip(a.index, extents.get(a.obj, ()), strict=False)]
    return tuple(op("lt", index, extent) for index, extent in pairs)


def bounded(stmt: Stmt, kernel: Kernel) -> Stmt:
    """Return the statement with all bounds at the start of its mask. A copy that had no mask is padded with zero."""
    exact = tuple(dict.fromkeys(bounds(stmt, kernel)))
    if not isinstance(stmt, Copy | Accumulate) or not exact:
        return stmt
    masked = replace(stmt, mask=conjunction([*exact, *(c for c in conjuncts(stmt.mask) if c not in exact)]))
    return padded(masked, kernel, 0) if isinstance(masked, Copy) and stmt.mask is None else masked


def padded(copy: Copy, kernel: Kernel, value: float) -> Copy:
    """Return the copy with `value` where its mask is false. A copy to a tensor is returned unchanged."""
    if any(copy.dst.obj == t.name for t in kernel.tensors):
        return copy
    dtype = kernel.object(copy.dst.obj).dtype
    number = float(value) if dtype.is_float else bool(value) if dtype.kind == "bool" else int(value)
    return replace(copy, other=Const(number, dtype))


def without_constants(expr: Expr) -> Iterator[Expr]:
    """Yield `expr` with the constant left out of one of its sums or differences, for each of these in turn."""
    match expr:
        case Op(op="add" | "sub", args=(rest, Const())) if expr.dtype == int32:
            yield rest
        case Op(op="add", args=(Const(), rest)) if expr.dtype == int32:
            yield rest
        case _:
            pass
    if isinstance(expr, Op):
        for i, part in enumerate(expr.args):
            for changed in without_constants(part):
                yield replace(expr, args=(*expr.args[:i], changed, *expr.args[i + 1 :]))
