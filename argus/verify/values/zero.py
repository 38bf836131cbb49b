"""Sizes that may be 0 and divide: a mean over no elements is no number, in a kernel as in its specification.

Both are compared where such sizes are positive. Where one is 0, sums over it have no terms, and both values are
evaluated: they have to be the same number, or both no number.
"""

from __future__ import annotations

import math

from argus.ir.expr import Param
from argus.verify.model.isl import Set, UnionMap
from argus.verify.model.relations import Model
from argus.verify.values.scope import Scope
from argus.verify.values.terms import Apply, Cases, Choice, Constant, Parameter, Recurrence, Reduce, Term, Via


def dividing(terms: list[Term]) -> list[str]:
    """Return the sizes and scalars in divisors of terms that are not known to be positive, without repeats."""
    found: dict[str, None] = {}
    pending, seen = list(terms), set[Term]()
    while pending:
        term = pending.pop()
        if term in seen:
            continue
        seen.add(term)
        if isinstance(term, Apply) and term.op == "truediv":
            found |= dict.fromkeys(_parameters(term.args[1]))
        pending += _within(term)
    return sorted(found)


def _within(term: Term) -> list[Term]:
    match term:
        case Via(term=inner) | Recurrence(term=inner):
            return [inner]
        case Cases(parts=parts):
            return [inner for _, inner in parts]
        case Reduce(start=start, parts=contributions):
            return [start, *(inner for _, inner in contributions)]
        case Apply(args=args):
            return list(args)
        case Choice(test=test, yes=yes, no=no):
            return [test, yes, no]
        case _:
            return []


def _parameters(divisor: Term) -> list[str]:
    match divisor:
        case Parameter(name=name, positive=positive):
            return [] if positive else [name]
        case Via(term=inner):
            return _parameters(inner)
        case Apply(op="mul", args=args):
            return [name for a in args for name in _parameters(a)]
        case _:
            return []


def where_zero(model: Model, size: str, zero: bool) -> Set:
    """Return the parameters with which a size is 0, or more than 0."""
    return model.facts(f"{model.translator.integer(Param(size), ())} {'=' if zero else '>'} 0")


class Emptiness:
    """Evaluates terms where a size is 0."""

    def __init__(self, size: str) -> None:
        self._size = size

    def equal(self, mine: Term, wanted: Term, scope: Scope) -> bool:
        """Return True if two terms are the same number at all roots, or both no number."""
        a, b = self.number(mine, scope.path), self.number(wanted, scope.other)
        return a is not None and b is not None and _same(a, b)

    def number(self, term: Term, path: UnionMap) -> float | None:
        """Return the number, perhaps NaN, that a term is at all points of `path`, {point -> instance}; None if it is
        not known."""
        match term:
            case Constant(value=value):
                return value
            case Parameter(name=name):
                return 0.0 if name == self._size else None
            case Via(along=along, term=inner):
                return self.number(inner, path.apply_range(along))
            case Recurrence(term=inner):
                return self.number(inner, path)
            case Cases(parts=parts):
                limited = [(path.intersect_range(region), inner) for region, inner in parts]
                return _one([self.number(inner, here) for here, inner in limited if not here.is_empty()])
            case Reduce(op="add", start=start, parts=parts):
                reached = [(path.apply_range(along), inner) for along, inner in parts]
                added = [self.number(inner, here) for here, inner in reached if not here.is_empty()]
                return self.number(start, path) if all(value == 0 for value in added) else None
            case Apply(op=op, args=args):
                return _applied(op, [self.number(a, path) for a in args])
            case _:
                return None


def _one(values: list[float | None]) -> float | None:
    first = values[0] if values else None
    return first if first is not None and all(v is not None and _same(v, first) for v in values) else None


def _same(a: float, b: float) -> bool:
    """Return True for equal numbers, and for two that are no numbers."""
    return a == b or (math.isnan(a) and math.isnan(b))


def _applied(op: str, args: list[float | None]) -> float | None:
    if op in ("add", "sub", "mul", "truediv", "sqrt", "rsqrt", "neg", "exp") and any(
        a is not None and math.isnan(a) for a in args
    ):
        return math.nan
    match op, args:
        case "truediv", [0.0, 0.0]:
            return math.nan
        case "add", [float() as a, float() as b]:
            return a + b
        case "sub", [float() as a, float() as b]:
            return a - b
        case "mul", [float() as a, float() as b]:
            return a * b
        case _:
            return None
