"""Replace each minimum or maximum in a loop bound or branch by a parameter with a few known properties.

    for k in 0 .. minimum(K, m0 + 64)   ->   for k in 0 .. stop,  requires stop <= K and stop <= m0 + 64

Sets with a minimum or maximum as a bound split into one region for each operand, and every question about them splits
too. A parameter avoids that. A proof for every number with these properties holds for the number that the parameter
stands for. A property without such a proof may still be true, so the original kernel is checked then. `definitions`
state exactly what the parameters are.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from argus.ir.expr import Expr, Op, Param, op, rewrite
from argus.ir.nodes import For, If, Kernel, Requires, Stmt
from argus.ir.visit import map_exprs, rewrite_body, walk
from argus.verify.model.program import is_launch_constant
from argus.verify.model.resolving import BOUND, BOUND_OF_BLOCK, differs_by_block


@dataclass(frozen=True)
class Named:
    """A kernel that knows less about its loops and branches than the original; `definitions` restore the difference."""

    kernel: Kernel
    definitions: tuple[Expr, ...]


def named(kernel: Kernel) -> Named:
    """Replace each minimum and maximum that is fixed for a block and occurs in a loop bound or branch by a parameter.

    Equal expressions elsewhere are replaced too. A kernel without any is returned unchanged.
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
"""The comparison that holds between a minimum or maximum and each of its operands."""
