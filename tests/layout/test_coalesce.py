"""`coalesce` and `filter_zeros`."""

from __future__ import annotations

import pytest
from hypothesis import given

from argus.layout import Layout, LayoutError, coalesce, filter_zeros, parse
from argus.layout.swizzle import SwizzledLayout, offsets

from .strategies import law, layouts, small_layouts, swizzled


def check(a: Layout) -> None:
    r = coalesce(a)
    assert r.size() == a.size() and r.depth <= 1
    assert offsets(r).tolist() == offsets(a).tolist()
    assert coalesce(r) == r


def test_every_small_layout() -> None:
    for a in small_layouts():
        check(a)


@given(layouts(negative=True))
@law
def test_same_function_fewer_modes(a: Layout) -> None:
    check(a)


@given(layouts())
@law
def test_by_mode_keeps_the_sizes_of_the_modes(a: Layout) -> None:
    r = coalesce(a, (1,) * a.rank)
    assert [m.size() for m in r] == [m.size() for m in a]
    assert list(r) == [coalesce(m) for m in a]


@given(swizzled())
@law
def test_swizzled(a: SwizzledLayout) -> None:
    assert offsets(coalesce(a)).tolist() == offsets(a).tolist()


@given(layouts())
@law
def test_filter_keeps_the_image_without_repetition(a: Layout) -> None:
    r = filter_zeros(a)
    assert set(offsets(r).tolist()) == set(offsets(a).tolist())
    assert all(d != 0 for m in r for d in [m.stride] if m.size() > 1)


@pytest.mark.parametrize(
    ("text", "golden"),
    [
        ("(2,(1,6)):(1,(6,2))", "12:1"),
        ("(2,4):(4,1)", "(2,4):(4,1)"),
        ("(1,1):(7,9)", "1:0"),
        ("(4,2):(0,0)", "8:0"),
        ("((2,2),(2,2)):((1,4),(8,16))", "(2,8):(1,4)"),
    ],
)
def test_golden(text: str, golden: str) -> None:
    a = parse(text)
    assert isinstance(a, Layout)
    assert str(coalesce(a)) == golden


def test_bad_profile() -> None:
    with pytest.raises(LayoutError, match="3 entries"):
        coalesce(Layout((2, 3), (1, 2)), (1, 1, 1))
