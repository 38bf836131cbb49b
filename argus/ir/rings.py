"""Places in rings of buffers: `(n + d) % S` and parities `((n + d) // S + a) % 2`, where n is a running count
(`For.counter`).

In a loop that runs once, the count is the trip number, and such places are affine. In nested loops (a persistent
kernel), the count is a product of trip counts. There a place is named by the *trip* itself, the trip numbers of all
surrounding loops, and the count is the trip's rank in lexicographic order. `n + d` is then the trip d steps later
(`relations.Count`), and the trips that share a buffer are multiples of S apart.

The emitter's counts are not negative, and neither is any part of such an expression: d and a are at least 0 there.
"""

from __future__ import annotations

from dataclasses import dataclass

from argus.ir.expr import Const, Expr, LoopVar, Op


@dataclass(frozen=True, slots=True)
class RingPlace:
    """The place `(counter + shift) % size`."""

    counter: str
    shift: int
    size: int


def place_in_ring(expr: Expr) -> RingPlace | None:
    """Return the place in a ring for which an index stands, or None."""
    match expr:
        case Op(op="mod", args=(inner, Const(value=size))):
            moved = _moved(inner)
            return None if moved is None else RingPlace(moved[0], moved[1], int(size))
        case _:
            return None


@dataclass(frozen=True, slots=True)
class Turn:
    """The parity `((counter + shift) // size + ahead) % 2`."""

    counter: str
    shift: int
    size: int
    ahead: int


def turn_in_ring(expr: Expr) -> Turn | None:
    """Return the turn of a ring whose parity an expression computes, or None."""
    if not isinstance(expr, Op) or expr.op != "mod" or expr.args[1] != Const(2, expr.args[1].dtype):
        return None
    inner, ahead = expr.args[0], 0
    match inner:
        case Op(op="add", args=(turn, Const(value=more))):
            inner, ahead = turn, int(more)
        case Op(op="sub", args=(turn, Const(value=more))):
            inner, ahead = turn, -int(more)
        case _:
            pass
    match inner:
        case Op(op="floordiv", args=(count, Const(value=size))):
            moved = _moved(count)
            return None if moved is None else Turn(moved[0], moved[1], int(size), ahead)
        case _:
            return None


def turn_parity(expr: Expr, place: RingPlace) -> int | None:
    """Return a for a parity `((n + d) // S + a) % 2` of the ring of `place`, or None for any other expression."""
    turn = turn_in_ring(expr)
    if turn is None or (turn.counter, turn.size) != (place.counter, place.size):
        return None
    rounds, rest = divmod(turn.shift - place.shift, place.size)
    return None if rest else (turn.ahead + rounds) % 2


def _moved(expr: Expr) -> tuple[str, int] | None:
    """Return (n, d) for an expression n + d."""
    match expr:
        case LoopVar(name=name):
            return name, 0
        case Op(op="add", args=(LoopVar(name=name), Const(value=value))):
            return name, int(value)
        case Op(op="sub", args=(LoopVar(name=name), Const(value=value))):
            return name, -int(value)
        case _:
            return None
