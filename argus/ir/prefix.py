"""Masks that begin or end inside a vector: true for consecutive elements, false for the rest."""

from __future__ import annotations

from dataclasses import dataclass

from argus.ir.expr import Coord, Expr, Op, conjunction, walk
from argus.ir.instruction import Ends
from argus.ir.types import boolean


@dataclass(frozen=True, slots=True)
class Inside:
    """The mask `rest & (start <= place) & (place < bound)`, where `place` counts along the vector, and the other terms
    are the same for the whole vector.

    Parts that the mask lacks are None: `start`, or all of `place`, `start` and `bound` if the mask does not depend on
    the place.
    """

    rest: Expr | None
    place: Expr | None
    start: Expr | None
    bound: Expr | None


def along(mask: Expr | None, axis: int, ends: Ends) -> Inside | None:
    """Return `mask` along `axis` as a range that may begin inside an access only if `ends` allows it. Return None if
    `mask` has another form."""
    return inside(mask, axis) if ends is Ends.BOTH else prefix(mask, axis)


def prefix(mask: Expr | None, axis: int) -> Inside | None:
    """Return `mask` along the domain's `axis` as a range without a start, or None if `mask` has another form."""
    found = inside(mask, axis)
    return found if found is not None and found.start is None else None


def inside(mask: Expr | None, axis: int) -> Inside | None:
    """Return `mask` along the domain's `axis` as a range with a bound, and a start only if it has a bound. Return None
    if `mask` has another form."""
    if mask is None:
        return Inside(None, None, None, None)
    terms = _terms(mask)
    moving = [t for t in terms if _depends(t, axis)]
    rest = conjunction([t for t in terms if not _depends(t, axis)])
    match moving:
        case []:
            return Inside(rest, None, None, None)
        case [Op(op="lt", args=(place, bound))] if counts(place, axis) and not _depends(bound, axis):
            return Inside(rest, place, None, bound)
        case [Op(op="le", args=(start, same)), Op(op="lt", args=(place, bound))] if (
            same == place and counts(place, axis) and not _depends(start, axis) and not _depends(bound, axis)
        ):
            return Inside(rest, place, start, bound)
        case _:
            return None


def counts(expr: Expr, axis: int) -> bool:
    """Return True if `expr` is the coordinate of `axis` plus a term that does not depend on `axis`."""
    match expr:
        case Coord(axis=found):
            return found == axis
        case Op(op="add", args=(x, y)):
            return (counts(x, axis) and not _depends(y, axis)) or (counts(y, axis) and not _depends(x, axis))
        case Op(op="sub", args=(x, y)):
            return counts(x, axis) and not _depends(y, axis)
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
