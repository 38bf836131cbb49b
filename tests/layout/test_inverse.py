"""`right_inverse` and `left_inverse`."""

from __future__ import annotations

import pytest
from hypothesis import given

from argus.layout import Layout, LayoutError, left_inverse, parse, right_inverse
from argus.layout.swizzle import offsets

from .strategies import compact, injective, law, layouts, small_layouts

pytestmark = pytest.mark.slow


def check_right(a: Layout) -> None:
    r = right_inverse(a)
    assert [a(int(x)) for x in offsets(r)] == list(range(r.size()))


def check_left(a: Layout) -> None:
    r = left_inverse(a)
    assert [r(int(x)) for x in offsets(a)] == list(range(a.size()))


def test_every_small_layout() -> None:
    for a in small_layouts():
        check_right(a)
        try:
            left_inverse(a)
        except LayoutError:
            continue
        check_left(a)


@given(layouts())
@law
def test_right(a: Layout) -> None:
    check_right(a)


@given(injective())
@law
def test_left(a: Layout) -> None:
    check_left(a)


@given(compact())
@law
def test_both_are_the_inverse_of_a_bijection(a: Layout) -> None:
    assert right_inverse(a).size() == a.size()
    check_right(a)
    check_left(a)


def test_golden() -> None:
    assert str(right_inverse(parse("(4,8):(8,1)"))) == "(8,4):(4,1)"  # type: ignore[arg-type]
    assert str(right_inverse(parse("(4,8):(2,8)"))) == "1:0"  # type: ignore[arg-type]
    assert str(left_inverse(parse("4:2"))) == "(2,4):(4,1)"  # type: ignore[arg-type]
    assert str(left_inverse(parse("(2,2):(1,3)"))) == "(3,2):(1,2)"  # type: ignore[arg-type]


def test_a_layout_that_repeats_has_no_left_inverse() -> None:
    for strides in ((1, 0), (1, 1), (2, 3), (1, -4)):
        with pytest.raises(LayoutError, match="has no left inverse"):
            left_inverse(Layout((4, 2), strides))
