"""Evaluation, sizes and construction of plain layouts."""

from __future__ import annotations

import re
from itertools import product

import pytest
from hypothesis import given

from argus.layout import Layout, LayoutError, column_major, layout, row_major
from argus.layout.inttuple import IntTuple

from .strategies import law, layouts, small_layouts


def brute(shape: IntTuple, stride: IntTuple) -> list[int]:
    """Offsets in colexicographic order, by plain recursion."""
    if isinstance(shape, tuple) and isinstance(stride, tuple):
        parts = [brute(s, d) for s, d in zip(shape, stride, strict=True)]
        return [sum(digits) for digits in (p[::-1] for p in product(*parts[::-1]))]
    assert isinstance(shape, int) and isinstance(stride, int)
    return [i * stride for i in range(shape)]


@given(layouts(negative=True))
@law
def test_flat_index_is_colexicographic(a: Layout) -> None:
    assert [a(i) for i in range(a.size())] == brute(a.shape, a.stride)


@given(layouts(negative=True))
@law
def test_cosize_is_the_span(a: Layout) -> None:
    offsets = brute(a.shape, a.stride)
    assert a.cosize() == max(offsets) - min(offsets) + 1


def test_cosize_of_every_small_layout_is_its_last_offset_plus_one() -> None:
    for a in small_layouts():
        assert a.cosize() == a(a.size() - 1) + 1


@given(layouts())
@law
def test_modes_add_up(a: Layout) -> None:
    sizes = [m.size() for m in a]
    for coord in product(*(range(n) for n in sizes)):
        if len(coord) > 1:
            assert a(*coord) == a(coord) == sum(m(c) for m, c in zip(a, coord, strict=True))


def test_nested_coordinates() -> None:
    a = layout(((2, 4), 8), ((1, 16), 2))
    assert a.rank == 2 and a.depth == 2 and a.size() == 64 and a.cosize() == 64
    assert a((1, 3), 5) == a(7, 5) == a(((1, 3), 5)) == a(7 + 8 * 5) == 1 + 48 + 10
    assert a[0] == layout((2, 4), (1, 16)) and a[-1] == layout(8, 2)


def test_constructors() -> None:
    assert layout((4, (2, 3))) == column_major((4, (2, 3))) == Layout((4, (2, 3)), (1, (4, 8)))
    assert row_major((4, (2, 3))) == Layout((4, (2, 3)), (6, (3, 1)))
    assert layout(8) == Layout(8, 1) and layout(8).rank == 1 and layout(8).depth == 0
    assert Layout((), ()).size() == 1 and Layout((), ())() == 0


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Layout((2, 3), (1,)), "nested differently"),
        (lambda: Layout((2, 0), (1, 2)), "an extent below 1"),
        (lambda: Layout((2, "x"), (1, 2)), "holds 'x' of type str"),
        (lambda: Layout(True, 1), "holds True of type bool"),
        (lambda: layout((2, 3))(1, 1, 1), "has 3 entries but shape (2,3) has 2 modes"),
        (lambda: layout((2, 3))((0, 1), 1), "is a tuple where shape 2 is one integer"),
        (lambda: layout((2, 3))(-1), "coordinate -1 is negative"),
        (lambda: layout((2, 3))(0, -1), "coordinate -1 is negative"),
        (lambda: layout((2, 3))[2], "there is no mode 2"),
    ],
)
def test_bad_input(make, message) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(LayoutError, match=re.escape(message)):
        make()
