"""Masks that end inside of a vector."""

from __future__ import annotations

from argus.ir.expr import Const, Coord, LoopVar, Param, op
from argus.ir.prefix import Prefix, counts, prefix

K, M = Param("K"), Param("M")
PLACE = op("add", LoopVar("k"), Coord(1))
END = op("lt", PLACE, K)
ROW = op("lt", Coord(0), M)


def test_one_bound_of_the_place_and_conditions_that_are_the_same_for_all() -> None:
    assert prefix(None, 1) == Prefix(None, None, None)
    assert prefix(ROW, 1) == Prefix(ROW, None, None)
    assert prefix(END, 1) == Prefix(None, PLACE, K)
    assert prefix(op("and", ROW, END), 1) == prefix(op("and", END, ROW), 1) == Prefix(ROW, PLACE, K)


def test_masks_of_another_form() -> None:
    twice = op("lt", op("mul", Coord(1), Const(2)), K)
    late = op("ge", PLACE, K)
    for mask in (twice, late, op("and", END, op("lt", Coord(1), M)), op("or", END, ROW), op("lt", PLACE, Coord(1))):
        assert prefix(mask, 1) is None


def test_what_counts_along_an_axis() -> None:
    assert counts(PLACE, 1) and counts(op("add", Const(3), PLACE), 1) and not counts(PLACE, 0)
    assert not counts(op("add", Coord(1), Coord(1)), 1) and not counts(op("sub", LoopVar("k"), Coord(1)), 1)
