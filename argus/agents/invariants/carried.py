"""The tags that the elements of an object carry, as far as the data flow tells: guesses that a proof confirms or
drops."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from math import prod

from argus.ir.expr import Const, Coord, Expr, LoopVar, Op, linear, op, rewrite, substitute_coords, walk
from argus.ir.nodes import Once

Term = Expr | Once
Change = Callable[[Expr], Expr]
ZERO = Const(0)


@dataclass(frozen=True, slots=True)
class Carried:
    """The term of each field over an object's coordinates, with alternatives, the likeliest first.

    `inside`: conditions under which there is an element. `assumed`: true only if a tag says so.
    """

    fields: Mapping[str, tuple[Term, ...]]
    inside: tuple[Expr, ...] = ()
    assumed: bool = False

    def at(self, index: tuple[Expr, ...]) -> Carried:
        """Return what the element at an index carries, over the coordinates of the index."""
        return self.changed(lambda e: substitute_coords(e, index))

    def changed(self, change: Change) -> Carried:
        """Return the same with all expressions changed."""
        fields = {n: tuple(dict.fromkeys(changed(t, change) for t in terms)) for n, terms in self.fields.items()}
        return replace(self, fields=fields, inside=tuple(change(c) for c in self.inside))

    def only(self, keep: Iterable[str]) -> Carried:
        """Return the same with some fields only."""
        names = set(keep)
        return replace(self, fields={n: t for n, t in self.fields.items() if n in names})

    @property
    def single(self) -> Carried:
        """The fields that are single integers."""
        return self.only(n for n, terms in self.fields.items() if not isinstance(terms[0], Once))


def changed(term: Term, change: Change) -> Term:
    """Return a term with its expressions changed."""
    return Once(change(term.lo), change(term.hi)) if isinstance(term, Once) else change(term)


def with_loop(expr: Expr, var: str, value: Expr) -> Expr:
    """Return an expression with a loop's counter replaced, and constants folded."""

    def change(e: Expr) -> Expr | None:
        if isinstance(e, LoopVar) and e.name == var:
            return value
        return op(e.op, *e.args) if isinstance(e, Op) and e.op in _FOLDED else None

    return rewrite(expr, change)


_FOLDED = ("add", "sub", "mul", "floordiv", "mod", "minimum", "maximum")


def tidied(expr: Expr) -> Expr:
    """Return an integer sum with equal terms together."""
    factors, constant = linear(expr)
    found: Expr = ZERO
    for term, factor in factors.items():
        found = op("add", found, op("mul", term, Const(factor)))
    return op("add", found, Const(constant)) if constant >= 0 else op("sub", found, Const(-constant))


def plain(term: Term) -> Term:
    """Return a term in its shortest form, so that equal terms look alike."""
    if isinstance(term, Once):
        return Once(_shortest(term.lo), _shortest(term.hi))
    return _shortest(term)


def _shortest(expr: Expr) -> Expr:
    match expr:
        case Op(op="minimum", args=(Op(op="minimum", args=(_, inner)) as cut, outer)) if inner == outer:
            return _shortest(cut)
        case Op(op="minimum", args=(a, b)):
            return op("minimum", tidied(a), tidied(b))
        case _:
            return tidied(expr)


def mentions(term: Term, var: str) -> bool:
    """Return True if a term depends on a loop's counter."""
    parts = (term.lo, term.hi) if isinstance(term, Once) else (term,)
    return any(isinstance(e, LoopVar) and e.name == var for p in parts for e in walk(p))


def coordinates(expr: Expr) -> set[int]:
    """Return the axes whose coordinates an expression reads."""
    return {e.axis for e in walk(expr) if isinstance(e, Coord)}


def gathered(term: Term, shape: tuple[int, ...], gone: set[int], size: Expr) -> tuple[Term, ...]:
    """Return what a field becomes if elements along some axes are added up: a set, where it differs along them.

    `size`: the extent of the tensor's dimension, which cuts the set. No term if the set is no interval.
    """
    if isinstance(term, Once):
        return (term,) if not (coordinates(term.lo) | coordinates(term.hi)) & gone else ()
    if not coordinates(term) & gone:
        return (term,)
    factors, _ = linear(term)
    along = sorted((factor, e.axis) for e, factor in factors.items() if isinstance(e, Coord) and e.axis in gone)
    extents = [shape[axis] for _, axis in along]
    steps = [prod(extents[:number]) for number in range(len(extents))]
    if [factor for factor, _ in along] != steps or coordinates(term) & gone != {axis for _, axis in along}:
        return ()
    lo = rewrite(term, lambda e: ZERO if isinstance(e, Coord) and e.axis in gone else None)
    lo = with_loop(lo, "", ZERO)
    return intervals(lo, op("add", lo, Const(prod(extents))), size)


def intervals(lo: Expr, hi: Expr, size: Expr) -> tuple[Term, ...]:
    """Return the sets from `lo` to `hi`, as far as a dimension of that size goes."""
    start = Const(0) if isinstance(lo, Const) and lo.value < 0 else lo
    if isinstance(lo, Const) and isinstance(hi, Const) and hi == size:
        return (Once(start, hi),)
    return tuple(dict.fromkeys((Once(start, op("minimum", hi, size)), Once(start, hi))))
