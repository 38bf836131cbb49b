"""Masks that end inside of a vector: true for its first elements, false for the rest."""

from __future__ import annotations

from dataclasses import dataclass

from argus.ir.expr import Coord, Expr, Op, conjunction, walk
from argus.ir.types import boolean


@dataclass(frozen=True, slots=True)
class Prefix:
    """`rest & (place < bound)`, where `place` counts along the vector, and the others are the same for all of it.

    `place` and `bound` are None where the mask does not depend on the place.
    """

    rest: Expr | None
    place: Expr | None
    bound: Expr | None


def prefix(mask: Expr | None, axis: int) -> Prefix | None:
    """`mask` along the domain's `axis` in that form; None if it has another."""
    if mask is None:
        return Prefix(None, None, None)
    terms = _terms(mask)
    moving = [t for t in terms if _depends(t, axis)]
    rest = conjunction([t for t in terms if not _depends(t, axis)])
    match moving:
        case []:
            return Prefix(rest, None, None)
        case [Op(op="lt", args=(place, bound))] if counts(place, axis) and not _depends(bound, axis):
            return Prefix(rest, place, bound)
        case _:
            return None


def counts(expr: Expr, axis: int) -> bool:
    """Whether `expr` is the coordinate of `axis` plus what does not depend on it."""
    match expr:
        case Coord(axis=found):
            return found == axis
        case Op(op="add", args=(x, y)):
            return (counts(x, axis) and not _depends(y, axis)) or (counts(y, axis) and not _depends(x, axis))
        case _:
            return False


def _terms(mask: Expr) -> list[Expr]:
    match mask:
        case Op(op="and", args=(x, y), dtype=dtype) if dtype is boolean:
            return [*_terms(x), *_terms(y)]
        case _:
            return [mask]


def _depends(expr: Expr, axis: int) -> bool:
    return any(isinstance(e, Coord) and e.axis == axis for e in walk(expr))
