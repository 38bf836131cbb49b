"""Bounds by name: a minimum or maximum that bounds a loop or a branch, as a number with a few properties.

    for k in 0 .. minimum(K, m0 + 64)   ->   for k in 0 .. stop,  requires stop <= K and stop <= m0 + 64

Sets with such a bound split into a region for each operand, and every question about them into as many; a number does
not. What is proved of every number with those properties holds for the one that it stands for. What is not proved so
may be true all the same: then the kernel is asked about as it is. `definitions` say exactly what the numbers are.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from argus.ir.expr import Expr, Op, Param, op, rewrite
from argus.ir.nodes import For, If, Kernel, Requires, Stmt
from argus.ir.visit import map_exprs, rewrite_body, walk
from argus.verify.model.program import BOUND, BOUND_OF_BLOCK, differs_by_block, is_launch_constant


@dataclass(frozen=True)
class Named:
    """A kernel that says no more than another one of its loops and branches, and what the other one says."""

    kernel: Kernel
    definitions: tuple[Expr, ...]


def named(kernel: Kernel) -> Named:
    """`kernel` with a parameter for each minimum and maximum that is fixed for a block and bounds a loop or a branch.

    The same ones elsewhere are replaced, too. Kernels without any are as they were.
    """
    names: dict[Expr, Param] = {}

    def choose(expr: Expr) -> Expr | None:
        if isinstance(expr, Op) and expr.op in _WEAKER and expr.dtype.is_int and is_launch_constant(expr):
            prefix = BOUND_OF_BLOCK if differs_by_block(expr) else BOUND
            return names.setdefault(expr, Param(f"{prefix}{len(names)}", expr.dtype))
        return None

    for stmt in walk(kernel.body):
        match stmt:
            case For(start=start, stop=stop):
                rewrite(start, choose), rewrite(stop, choose)
            case If(cond=cond):
                rewrite(cond, choose)
            case _:
                pass
    if not names:
        return Named(kernel, ())

    def change(stmt: Stmt) -> tuple[Stmt, ...]:
        return (map_exprs(stmt, names.get),)

    properties = [
        Requires(op(_WEAKER[expr.op], name, operand))
        for expr, name in names.items()
        if isinstance(expr, Op)
        for operand in expr.args
    ]
    body = rewrite_body(kernel.body, change)
    same = tuple(op("eq", name, expr) for expr, name in names.items())
    return Named(replace(kernel, body=body, preconditions=(*kernel.preconditions, *properties)), same)


_WEAKER = {"minimum": "le", "maximum": "ge"}
"""How a minimum or maximum compares with each of its operands."""
