"""Sums of an address: the uniform terms, the thread's terms, and the terms of the loop counters."""

from __future__ import annotations

from dataclasses import dataclass, field

from argus.ir.expr import Const, Coord, Elem, Expr, LoopVar, Op, Param, ProgramId, Thread, walk
from argus.ir.types import int32


@dataclass
class Parts:
    """A sum of terms.

    `uniform`, `mixed` and `threads` hold (factor, expression). `coords` holds the factor of each coordinate. `cuts`
    holds the factors of a coordinate modulo a width, (axis, width, False), and divided by it, (axis, width, True).
    A `narrow` sum keeps an expression as one term if 32 bits may hold its value but not its parts.
    """

    constant: int = 0
    uniform: list[tuple[int, Expr]] = field(default_factory=list)
    mixed: list[tuple[int, Expr]] = field(default_factory=list)
    coords: dict[int, int] = field(default_factory=dict)
    threads: list[tuple[int, Expr]] = field(default_factory=list)
    cuts: dict[tuple[int, int, bool], int] = field(default_factory=dict)
    narrow: bool = False

    def add(self, expr: Expr, factor: int) -> None:
        """Add `factor * expr`."""
        match expr:
            case Op() if self.narrow and not _fits_by_terms(expr):
                self._leaf(expr, factor)
            case Const(value=value):
                self.constant += factor * int(value)
            case Coord(axis=axis):
                self.coords[axis] = self.coords.get(axis, 0) + factor
            case Op(op="add", args=(x, y)):
                self.add(x, factor)
                self.add(y, factor)
            case Op(op="sub", args=(x, y)):
                self.add(x, factor)
                self.add(y, -factor)
            case Op(op="neg", args=(x,)):
                self.add(x, -factor)
            case Op(op="mul", args=(x, Const(value=value))) | Op(op="mul", args=(Const(value=value), x)):
                self.add(x, factor * int(value))
            case Op(op="cast", args=(x,)) if x.dtype.is_int and _widens(expr):
                self.add(x, factor)
            case _:
                self._leaf(expr, factor)

    def reach(self, shape: tuple[int, ...]) -> int:
        """Return the largest magnitude that the coordinates in `shape` alone, or the constant alone, can reach."""
        most = sum(abs(factor) * (shape[axis] - 1) for axis, factor in self.coords.items())
        return max(most, abs(self.constant))

    def _leaf(self, expr: Expr, factor: int) -> None:
        seen = {type(e) for e in walk(expr)}
        if seen & {Coord, Elem}:
            self.mixed.append((factor, expr))
        elif Thread in seen:
            other = seen & {Param, ProgramId, LoopVar}
            (self.mixed if other else self.threads).append((factor, expr))
        else:
            self.uniform.append((factor, expr))

    def add_panels(self, expr: Expr, width: int, near: int, far: int) -> bool:
        """Add `expr % width * near + expr // width * far`; return False if `expr` is not a plain coordinate."""
        inner = split(expr)
        plain = not (inner.mixed or inner.threads or inner.uniform or inner.constant % width)
        if not plain or list(inner.coords.values()) != [1] or width & (width - 1):
            return False
        (axis,) = inner.coords
        self.constant += inner.constant // width * far
        for key, factor in (((axis, width, False), near), ((axis, width, True), far)):
            self.cuts[key] = self.cuts.get(key, 0) + factor
        return True


def split(expr: Expr) -> Parts:
    """Return the parts of one index expression."""
    parts = Parts()
    parts.add(expr, 1)
    return parts


def addends(expr: Expr, shape: tuple[int, ...]) -> Parts:
    """Return the parts of an index over a domain of `shape`; each part fits into 32 bits whenever the index does.

    The proof shows that the whole index fits, for all coordinates including 0, but says nothing about its terms.
    `(c - 64) * 2**25` fits for c up to 127, for example, but `c * 2**25` does not. Such a product is not split.
    """
    while isinstance(expr, Op) and expr.op == "cast" and expr.args[0].dtype.is_int and _widens(expr):
        expr = expr.args[0]
    parts, whole = Parts(narrow=True), Parts()
    parts.add(expr, 1)
    whole._leaf(expr, 1)
    by_data = parts.mixed or parts.threads  # the sum of the other terms alone may be too large
    several = len(parts.uniform) + (parts.constant != 0) > 1
    return whole if parts.reach(shape) > int32.integers[1] or (by_data and several) else parts


def _fits_by_terms(expr: Op) -> bool:
    """Return True if all terms of a product with a sum fit into 32 bits whenever the product does.

    Terms of coordinates are not looked at here.
    """
    if expr.dtype.bits > 32:
        return False
    match expr:
        case Op(op="mul", args=(x, Const())) | Op(op="mul", args=(Const(), x)):
            of = split(x)
            others = len(of.mixed) + len(of.threads)
            terms = len(of.uniform) + others + (of.constant != 0)
            return (terms <= 1 and not (others and of.coords)) or len(of.uniform) + others == 0
        case _:
            return True


def _widens(expr: Op) -> bool:
    operand = expr.args[0].dtype
    return expr.dtype.bits >= operand.bits and not (expr.dtype.modular or operand.modular)


def times_text(text: str, factor: int) -> str:
    """Return `text * factor`, for a `text` that binds as a product."""
    return text if factor == 1 else f"{text} * {factor}"


def sum_text(terms: list[str]) -> str:
    """Return the sum of `terms` as text, without zeros."""
    return " + ".join(t for t in terms if t != "0") or "0"
