"""`logical_product` and its arrangements, and `tile_to_shape`."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from argus.layout import (
    Layout,
    LayoutError,
    blocked_product,
    complement,
    logical_product,
    parse,
    raked_product,
    table,
    tile_to_shape,
    zipped_product,
)
from argus.layout.swizzle import SwizzledLayout, offsets

from .strategies import compact, injective, law


@given(injective(), injective())
@law
def test_law(a: Layout, tiler: Layout) -> None:
    try:
        r = logical_product(a, tiler)
    except LayoutError:
        return
    free = complement(a, a.size() * tiler.cosize())
    assert r.rank == 2
    repeats = np.array([free(int(x)) for x in offsets(tiler)])
    assert (offsets(r).reshape(tiler.size(), a.size()) == offsets(a)[None, :] + repeats[:, None]).all()


@given(compact(), compact())
@law
def test_of_compact_layouts_is_compact(a: Layout, tiler: Layout) -> None:
    r = logical_product(a, tiler)
    assert (np.sort(offsets(r)) == np.arange(a.size() * tiler.size())).all()


@st.composite
def block_and_tiler(draw: st.DrawFn) -> tuple[Layout, Layout]:
    def one() -> Layout:
        shape = tuple(draw(st.sampled_from([1, 2, 3, 4])) for _ in range(2))
        return Layout(shape, (1, shape[0]) if draw(st.booleans()) else (shape[1], 1))

    return one(), one()


@given(block_and_tiler())
@law
def test_blocked_and_raked(case: tuple[Layout, Layout]) -> None:
    block, tiler = case
    b, t = table(block), table(tiler)
    (m, n), (p, q) = b.shape, t.shape
    copies = b[:, :, None, None] + block.size() * t[None, None, :, :]
    assert (table(blocked_product(block, tiler)) == copies.transpose(2, 0, 3, 1).reshape(m * p, n * q)).all()
    assert (table(raked_product(block, tiler)) == copies.transpose(0, 2, 1, 3).reshape(m * p, n * q)).all()


def test_golden() -> None:
    block, tiler = Layout((2, 5), (5, 1)), Layout((3, 4), (1, 3))
    assert str(logical_product(block, tiler)) == "((2,5),(3,4)):((5,1),(10,30))"
    assert str(blocked_product(block, tiler)) == "(6,(5,4)):(5,(1,30))"
    assert str(raked_product(block, tiler)) == "((3,2),(4,5)):((10,5),(30,1))"
    assert str(zipped_product(block, (Layout(1, 0), Layout(1, 0)))) == "((2,5),(1,1)):((5,1),(0,0))"
    assert str(logical_product(Layout(4, 1), 3)) == "(4,3):(1,4)"


@given(block_and_tiler(), st.permutations([0, 1]))
@law
def test_tile_to_shape(case: tuple[Layout, Layout], order: list[int]) -> None:
    block, counts = case
    b, t = table(block), table(counts)
    shape = tuple(x * y for x, y in zip(b.shape, t.shape, strict=True))
    full = table(tile_to_shape(block, shape, tuple(order)), shape)
    assert sorted(full.reshape(-1).tolist()) == list(range(full.size))
    steps = {}
    for i, j in np.ndindex(*t.shape):
        tile = full[i * b.shape[0] : (i + 1) * b.shape[0], j * b.shape[1] : (j + 1) * b.shape[1]]
        steps[(i, j)] = int(tile[0, 0]) - int(b[0, 0])
        assert (tile - b == steps[(i, j)]).all()
    ranked = sorted(steps, key=lambda k: (k[0], k[1]) if order[0] > order[1] else (k[1], k[0]))
    assert [steps[k] for k in ranked] == [block.size() * k for k in range(len(ranked))]


def test_tile_to_shape_of_a_swizzled_atom() -> None:
    atom = parse("Sw<3,4,3> o 0 o (8,64):(64,1)")
    assert isinstance(atom, SwizzledLayout)
    full = tile_to_shape(atom, (128, 128), (0, 1))
    assert str(full) == "Sw<3,4,3> o 0 o (128,(64,2)):(64,(1,8192))"
    assert sorted(table(full).reshape(-1).tolist()) == list(range(128 * 128))


def test_refusals() -> None:
    with pytest.raises(LayoutError, match="8 does not divide 12"):
        tile_to_shape(Layout((8, 2), (1, 8)), (12, 4))
    with pytest.raises(LayoutError, match="more than the target shape"):
        tile_to_shape(Layout((8, 2), (1, 8)), 16)
    with pytest.raises(LayoutError, match="order"):
        tile_to_shape(Layout((8, 2), (1, 8)), (16, 4), (0,))
