"""`logical_divide`, `zipped_divide`, `tiled_divide`."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from argus.layout import (
    Layout,
    LayoutError,
    coalesce,
    complement,
    logical_divide,
    parse,
    table,
    tiled_divide,
    zipped_divide,
)
from argus.layout.swizzle import SwizzledLayout, offsets

from .strategies import compact, injective, law, layouts


@given(compact() | injective() | layouts(), injective())
@law
def test_law(a: Layout, tiler: Layout) -> None:
    try:
        r = logical_divide(a, tiler)
    except LayoutError:
        return
    rest, longer = complement(tiler, a.size()), coalesce(a)
    for j in range(rest.size()):
        for i in range(tiler.size()):
            assert r(i, j) == longer(tiler(i) + rest(j))


@st.composite
def divided(draw: st.DrawFn) -> tuple[Layout, tuple[int, ...]]:
    """A layout of two or three modes and one dividing extent a mode."""
    tiles = draw(st.lists(st.sampled_from([1, 2, 3, 4]), min_size=2, max_size=3))
    counts = [draw(st.sampled_from([1, 2, 3])) for _ in tiles]
    strides = [draw(st.integers(0, 30)) for _ in tiles]
    shape = tuple(t * c for t, c in zip(tiles, counts, strict=True))
    return Layout(shape, tuple(strides)), tuple(tiles)


@given(divided())
@law
def test_tiles_are_the_tiles(case: tuple[Layout, tuple[int, ...]]) -> None:
    """Tile (k0, k1, …) of the zipped form is the k-th block of the array."""
    a, tiles = case
    full, zipped, tiled = table(a), zipped_divide(a, tiles), tiled_divide(a, tiles)
    counts = tuple(n // t for n, t in zip(full.shape, tiles, strict=True))
    assert zipped[0].size() * zipped[1].size() == a.size()
    assert [m.size() for m in tiled] == [zipped[0].size(), *counts]
    for k in range(zipped[1].size()):
        where, rest = [], k
        for count in counts:
            rest, digit = divmod(rest, count)
            where.append(digit)
        block = full[tuple(slice(w * t, (w + 1) * t) for w, t in zip(where, tiles, strict=True))]
        assert [zipped(i, k) for i in range(zipped[0].size())] == block.reshape(-1, order="F").tolist()
        assert tiled(0, *where) == zipped(0, k)


def test_golden() -> None:
    a = Layout((9, (4, 8)), (59, (13, 1)))
    tiler = (Layout(3, 3), Layout((2, 4), (1, 8)))
    assert str(logical_divide(a, tiler)) == "((3,3),((2,4),(2,2))):((177,59),((13,2),(26,1)))"
    assert str(zipped_divide(a, tiler)) == "((3,(2,4)),(3,(2,2))):((177,(13,2)),(59,(26,1)))"
    assert str(tiled_divide(a, tiler)) == "((3,(2,4)),3,(2,2)):((177,(13,2)),59,(26,1))"
    assert str(logical_divide(Layout(10, 1), 4)) == "(4,3):(1,4)"
    assert str(zipped_divide(Layout((8, 6), (6, 1)), (4,))) == "((4),(2,6)):((6),(24,1))"


def test_swizzled_operand() -> None:
    a = parse("Sw<3,4,3> o 0 o (8,64):(64,1)")
    assert isinstance(a, SwizzledLayout)
    r = zipped_divide(a, (4, 8))
    assert str(r) == "Sw<3,4,3> o 0 o ((4,8),(2,8)):((64,1),(256,8))"
    assert sorted(offsets(r).tolist()) == sorted(offsets(a).tolist())


def test_refusals() -> None:
    with pytest.raises(LayoutError, match="3 tilers"):
        logical_divide(Layout((4, 4), (1, 4)), (2, 2, 2))
    with pytest.raises(LayoutError, match="neither divides the other"):
        logical_divide(Layout((6, 4), (1, 10)), 4)
