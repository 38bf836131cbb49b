"""Normal forms of terms: equal terms have one form, others differ, and what may be no number never cancels."""

import pytest

from argus.ir.expr import Const, Coord, Elem, Op, Param
from argus.ir.nodes import SpecOp, SpecReduce
from argus.ir.types import bfloat16, boolean, float32, int8, int32, int64
from argus.programs.prove.normal import normal, text

X, Y = (Elem(name, (Coord(0),), float32) for name in "xy")
A = Param("a", float32)


def f(op, *args, dtype=float32):
    return SpecOp(op, args, dtype)


def c(value):
    return Const(value, float32)


def total(axis, body, extent=None):
    return SpecReduce("add", axis, extent or Param("N"), body, float32)


def at(axis, name="x", dtype=float32):
    return Elem(name, (Coord(axis),), dtype)


def form(term):
    return text(normal(term, {0: "c0"}))


EQUAL = [
    (f("mul", f("add", X, Y), A), f("add", f("mul", A, X), f("mul", Y, A))),
    (f("sub", X, X), c(0.0)),
    (f("truediv", X, c(4.0)), f("mul", c(0.25), X)),
    (f("maximum", X, c(0.0)), f("maximum", c(0.0), X)),
    (f("gt", X, Y, dtype=boolean), f("lt", Y, X, dtype=boolean)),
    (total(1, f("mul", A, at(1))), f("mul", total(7, at(7)), A)),
    (total(1, f("add", at(1), at(1, "y"))), f("add", total(2, at(2)), total(3, at(3, "y")))),
    (total(1, total(2, f("mul", at(1), at(2, "y")))), f("mul", total(5, at(5)), total(6, at(6, "y")))),
    (f("cast", f("cast", X, dtype=bfloat16)), X),
    (total(1, c(2.0)), f("mul", c(2.0), f("cast", Param("N")))),
]
DIFFERENT = [
    (f("sub", X, Y), f("sub", Y, X)),
    (f("mul", X, X), X),
    (total(1, at(1)), total(1, at(1), Param("M"))),
    (f("cast", f("cast", Elem("i", (Coord(0),), int32), dtype=int8), dtype=int32), Elem("i", (Coord(0),), int32)),
    # a sum over nothing is 0, and a negative extent is nothing
    (total(1, c(2.0), Op("sub", (Param("N"), Const(5)), int32)),
     f("mul", c(2.0), f("cast", Op("sub", (Param("N"), Const(5)), int32)))),
]  # fmt: skip


@pytest.mark.parametrize(("left", "right"), EQUAL)
def test_equal_terms_have_one_form(left, right):
    assert form(left) == form(right)


@pytest.mark.parametrize(("left", "right"), DIFFERENT)
def test_other_terms_have_others(left, right):
    assert form(left) != form(right)


@pytest.mark.parametrize("partial", [f("truediv", c(1.0), X), f("log", X), f("rsqrt", X)])
def test_what_may_be_no_number_does_not_cancel(partial):
    assert form(f("sub", partial, partial)) != form(c(0.0))
    assert form(f("mul", partial, c(0.0))) != form(c(0.0))
    assert form(f("sub", f("exp", X), f("exp", X))) == form(c(0.0))


def test_indices_are_sums():
    place = Op("add", (Op("mul", (Const(4), Op("floordiv", (Coord(0), Const(4)), int32)), int32),
                       Op("sub", (Coord(0), Op("mul", (Op("floordiv", (Coord(0), Const(4)), int32), Const(4)), int32)),
                          int32)), int32)  # fmt: skip
    assert form(Elem("x", (Op("cast", (place,), int64),), float32)) == form(X)
