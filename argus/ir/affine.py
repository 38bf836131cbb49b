"""Integer expressions as sums: the step of an index along an axis, the divisors of an expression, and the places where
a mask may change."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce
from math import gcd

from argus.ir import visit
from argus.ir.expr import Const, Coord, Expr, LoopVar, Op, Param, walk
from argus.ir.nodes import For, Kernel, Requires
from argus.ir.types import boolean


@dataclass(frozen=True, slots=True)
class Linear:
    """The sum of `const` and coefficient times atom. An atom is any expression that is not a sum."""

    const: int
    terms: tuple[tuple[Expr, int], ...]

    def coefficient(self, atom: Expr) -> int:
        """Return the coefficient of `atom`; 0 if it does not occur as a summand."""
        return dict(self.terms).get(atom, 0)

    def without(self, atom: Expr) -> Linear:
        """Return the sum without the summand `atom`."""
        return Linear(self.const, tuple((e, c) for e, c in self.terms if e != atom))

    def depends_on(self, axis: int) -> bool:
        """Return True if `Coord(axis)` occurs anywhere in the sum, as a summand or inside an atom."""
        return any(depends_on(e, axis) for e, _ in self.terms)


def depends_on(expr: Expr, axis: int) -> bool:
    """Return True if `Coord(axis)` occurs in `expr`."""
    return any(isinstance(e, Coord) and e.axis == axis for e in walk(expr))


def linear(expr: Expr) -> Linear:
    """Return `expr` as a sum of terms. Casts between integer types are ignored, because indices do not overflow."""
    terms: dict[Expr, int] = {}
    const = _collect(expr, 1, terms)
    return Linear(const, tuple((e, c) for e, c in terms.items() if c != 0))


def _collect(expr: Expr, scale: int, terms: dict[Expr, int]) -> int:
    match expr:
        case Const(value=value, dtype=dtype) if dtype.is_int:
            return scale * int(value)
        case Op(op="add", args=(x, y)):
            return _collect(x, scale, terms) + _collect(y, scale, terms)
        case Op(op="sub", args=(x, y)):
            return _collect(x, scale, terms) + _collect(y, -scale, terms)
        case Op(op="neg", args=(x,)):
            return _collect(x, -scale, terms)
        case Op(op="mul", args=(x, Const(value=value))):
            return _collect(x, scale * int(value), terms)
        case Op(op="mul", args=(Const(value=value), y)):
            return _collect(y, scale * int(value), terms)
        case Op(op="shl", args=(x, Const(value=value))):
            return _collect(x, scale << int(value), terms)
        case Op(op="cast", args=(x,), dtype=dtype) if dtype.is_int and x.dtype.is_int and not x.dtype.modular:
            return _collect(x, scale, terms)
        case _:
            terms[expr] = terms.get(expr, 0) + scale
            return 0


@dataclass(frozen=True, slots=True)
class Facts:
    """Known divisors of launch-time scalars and of loop counters, by name."""

    params: Mapping[str, int]
    loops: Mapping[str, int]

    def divisor(self, expr: Expr) -> int:
        """Return the largest known integer that divides every value of `expr`, or 0 if `expr` is always 0."""
        total = linear(expr)
        return reduce(gcd, (c * self._atom(e) for e, c in total.terms), abs(total.const))

    def _atom(self, expr: Expr) -> int:
        match expr:
            case Param(name=name):
                return self.params.get(name, 1)
            case LoopVar(name=name):
                return self.loops.get(name, 1)
            case Op(op="mul", args=(x, y)):
                return self.divisor(x) * self.divisor(y)
            case Op(op="minimum" | "maximum", args=(x, y)) | Op(op="where", args=(_, x, y)):
                return gcd(self.divisor(x), self.divisor(y))
            case Op(op="mod", args=(x, y)):
                return gcd(self.divisor(x), self.divisor(y))
            case _:
                return 1


def facts(kernel: Kernel) -> Facts:
    """Collect the divisibility facts that follow from tensor alignments, `requires(size % n == 0)` and the steps of
    loops."""
    known: dict[str, int] = {}

    def divides(name: str, divisor: int) -> None:
        old = known.get(name, 1)
        known[name] = old * divisor // gcd(old, divisor)

    for tensor in kernel.tensors:
        unit = max(1, tensor.alignment // tensor.dtype.bytes)
        for extent, stride in zip(tensor.shape, tensor.strides, strict=True):
            if isinstance(extent, Param) and isinstance(stride, Const) and stride.value == 1:
                divides(extent.name, unit)
    for precondition in kernel.preconditions:
        if isinstance(precondition, Requires):
            for name, divisor in _divisibility(precondition.cond):
                divides(name, divisor)
    loops: dict[str, int] = {}
    for stmt in visit.walk(kernel.body):
        if isinstance(stmt, For):
            step = gcd(Facts(known, loops).divisor(stmt.start), stmt.step)
            loops[stmt.var] = gcd(loops.get(stmt.var, step), step)
    return Facts(known, loops)


def _divisibility(cond: Expr) -> list[tuple[str, int]]:
    match cond:
        case Op(op="and", args=(x, y), dtype=dtype) if dtype is boolean:
            return _divisibility(x) + _divisibility(y)
        case Op(op="eq", args=(Op(op="mod", args=(Param(name=name), Const(value=n))), Const(value=0))):
            return [(name, int(n))] if int(n) > 0 else []
        case _:
            return []


def on_runs(expr: Expr, axis: int, width: int, known: Facts) -> tuple[Expr, Facts]:
    """Return the value of `expr` on an aligned run of `width` elements along `axis`, and facts about its new atoms.

    If a run lies within one period of k elements, `x // k` is constant, and `x % k` goes up by 1 from a multiple of
    `width`:

        (8 * t + c) // 260, (8 * t + c) % 260    →    q, c + r    with width 4: r is a multiple of 4
    """
    found: dict[str, int] = {}

    def seen(e: Expr) -> Expr:
        if not isinstance(e, Op) or not depends_on(e, axis):
            return e
        args = tuple(map(seen, e.args))
        match e.op, args:
            case "floordiv" | "mod", (x, Const(value=period)) if int(period) > 0 and int(period) % width == 0:
                if not begins_runs(linear(x), axis, width, Facts({**known.params, **found}, known.loops)):
                    return Op(e.op, args, e.dtype)
                name = f"run {len(known.params) + len(found)}"
                found[name] = 1 if e.op == "floordiv" else width
                start = Param(name, e.dtype)
                return start if e.op == "floordiv" else Op("add", (Coord(axis), start), e.dtype)
            case _:
                return Op(e.op, args, e.dtype)

    return seen(expr), Facts({**known.params, **found}, known.loops)


def begins_runs(place: Linear, axis: int, width: int, known: Facts) -> bool:
    """Return True if a place goes up by 1 along `axis`, from a multiple of `width` on every aligned run."""
    rest = place.without(Coord(axis))
    if place.coefficient(Coord(axis)) != 1 or rest.depends_on(axis):
        return False
    return all(c * known.divisor(e) % width == 0 for e, c in rest.terms) and rest.const % width == 0


def uniform(mask: Expr | None, axis: int, width: int, known: Facts) -> bool:
    """Return True if `mask` is constant on every aligned run of `width` elements along `axis`.

    A comparison against a bound may change only between runs: `base + Coord(axis) < bound` with both `base`
    and `bound` multiples of `width`.
    """
    if mask is None or width == 1:
        return True
    mask, known = on_runs(mask, axis, width, known)
    if not depends_on(mask, axis):
        return True
    match mask:
        case Op(op="and" | "or", args=(x, y), dtype=dtype) if dtype is boolean:
            return uniform(x, axis, width, known) and uniform(y, axis, width, known)
        case Op(op="not", args=(x,), dtype=dtype) if dtype is boolean:
            return uniform(x, axis, width, known)
        case Op(op="lt" | "ge", args=(x, y)) if x.dtype.is_int:
            return _steps(x, y, 0, axis, width, known)
        case Op(op="le" | "gt", args=(x, y)) if x.dtype.is_int:
            return _steps(x, y, 1, axis, width, known)
        case _:
            return False


def _steps(x: Expr, y: Expr, slack: int, axis: int, width: int, known: Facts) -> bool:
    """Return True if `x < y + slack` changes only at multiples of `width` along `axis`."""
    difference = linear(Op("sub", (x, y), x.dtype))
    coefficient = difference.coefficient(Coord(axis))
    rest = difference.without(Coord(axis))
    if abs(coefficient) != 1 or rest.depends_on(axis):
        return False
    # c + rest - slack < 0 with c the coordinate; for -c + rest - slack < 0 it is not (c < rest - slack + 1).
    shift = -slack if coefficient == 1 else 1 - slack
    total = Linear(rest.const + shift, rest.terms)
    return all(c * known.divisor(e) % width == 0 for e, c in total.terms) and total.const % width == 0
