"""Find the write of an element that is read: its coordinates, as functions of the coordinates of the read."""

from __future__ import annotations

from dataclasses import replace

from argus.agents.invariants.carried import ZERO, Carried, Term
from argus.ir.expr import Const, Coord, Expr, LoopVar, Op, linear, op
from argus.ir.nodes import Once


def solved(written: tuple[Expr, ...], read: tuple[Expr, ...]) -> tuple[tuple[Expr, ...], dict[str, Expr]] | None:
    """Return the coordinates and loop counters at which a write was made to the place of a read; None if unclear.

    A place modulo the number of buffers was written when the expression under the modulus had the reader's value.
    """
    places: dict[int, Expr] = {}
    loops: dict[str, Expr] = {}
    for one, other in zip(written, read, strict=True):
        match one, other:
            case Coord(axis=axis), _:
                places[axis] = other
            case Op(op="mod", args=(inner, modulus)), Op(op="mod", args=(outer, same)) if modulus == same:
                found = _counter(inner, outer)
                if found is not None:
                    loops[found[0]] = found[1]
            case Op(op="add", args=(Coord(axis=axis), shift)), _:
                places[axis] = op("sub", other, shift)
            case Op(op="add", args=(shift, Coord(axis=axis))), _:
                places[axis] = op("sub", other, shift)
            case _ if one == other:
                continue
            case Const(), Const():
                return None
            case _:
                continue
    return tuple(places.get(axis, ZERO) for axis in range(max(places, default=-1) + 1)), loops


def _counter(inner: Expr, outer: Expr) -> tuple[str, Expr] | None:
    factors, constant = linear(inner)
    loops = [e for e, factor in factors.items() if isinstance(e, LoopVar) and factor == 1]
    if len(loops) != 1 or len(factors) != 1:
        return None
    return loops[0].name, op("sub", outer, Const(constant))


def joined(before: Carried, new: Carried) -> Carried:
    """Return what a cell carries to which more is added."""
    fields: dict[str, tuple[Term, ...]] = {}
    for name in {**before.fields, **new.fields}:
        old, added = before.fields.get(name, ()), new.fields.get(name, ())
        both = [Once(o.lo, a.hi) for o in old for a in added if isinstance(o, Once) and isinstance(a, Once)]
        fields[name] = tuple(dict.fromkeys((*both, *added, *old)))
    inside = tuple(c for c in new.inside if c in before.inside) or new.inside
    return replace(new, fields=fields, inside=inside)
