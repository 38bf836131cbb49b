"""Masks that begin or end inside of a vector."""

from __future__ import annotations

from argus.ir.expr import Const, Coord, LoopVar, Param, op
from argus.ir.prefix import Inside, counts, inside, prefix

K, M = Param("K"), Param("M")
PLACE = op("add", LoopVar("k"), Coord(1))
END = op("lt", PLACE, K)
ROW = op("lt", Coord(0), M)


def test_one_bound_of_the_place_and_conditions_that_are_the_same_for_all() -> None:
    assert prefix(None, 1) == Inside(None, None, None, None)
    assert prefix(ROW, 1) == Inside(ROW, None, None, None)
    assert prefix(END, 1) == Inside(None, PLACE, None, K)
    assert prefix(op("and", ROW, END), 1) == prefix(op("and", END, ROW), 1) == Inside(ROW, PLACE, None, K)


def test_a_start_as_well() -> None:
    begin = op("le", Const(0), PLACE)
    both = op("and", op("and", ROW, begin), END)
    assert inside(both, 1) == Inside(ROW, PLACE, Const(0), K) and prefix(both, 1) is None
    assert inside(END, 1) == prefix(END, 1) and inside(begin, 1) is None
    assert inside(op("and", op("le", Const(0), Coord(1)), END), 1) is None


def test_masks_of_another_form() -> None:
    twice = op("lt", op("mul", Coord(1), Const(2)), K)
    late = op("ge", PLACE, K)
    for mask in (twice, late, op("and", END, op("lt", Coord(1), M)), op("or", END, ROW), op("lt", PLACE, Coord(1))):
        assert prefix(mask, 1) is None


def test_what_counts_along_an_axis() -> None:
    assert counts(PLACE, 1) and counts(op("add", Const(3), PLACE), 1) and not counts(PLACE, 0)
    assert counts(op("sub", Coord(1), LoopVar("k")), 1) and not counts(op("sub", Coord(1), Coord(1)), 1)
    assert not counts(op("add", Coord(1), Coord(1)), 1) and not counts(op("sub", LoopVar("k"), Coord(1)), 1)
