"""Swizzles, swizzled layouts and offset tables."""

from __future__ import annotations

import re
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from argus.layout import Layout, LayoutError, Swizzle, SwizzledLayout, extremes, parse, table
from argus.layout.swizzle import offsets

from .strategies import law, layouts, swizzled, swizzles


@given(swizzles(), st.integers(0, 1 << 20))
@law
def test_a_swizzle_is_an_involution_on_aligned_blocks(s: Swizzle, x: int) -> None:
    assert s(s(x)) == x
    block = 1 << (s.base + s.bits + abs(s.shift))
    assert s(x) // block == x // block
    assert s(x) % (1 << s.base) == x % (1 << s.base)


def test_the_128_byte_swizzle() -> None:
    """Chunk (16 B) c of row r, 128 B a row, lands in chunk c ^ (r % 8): PTX ISA, tensor swizzling modes."""
    s = Swizzle(3, 4, 3)
    for row, chunk in product(range(16), range(8)):
        assert s(row * 128 + chunk * 16) == row * 128 + (chunk ^ (row % 8)) * 16


def test_masks() -> None:
    assert Swizzle(3, 4, 3).source_mask == 0b111_000_0000
    assert Swizzle(3, 4, 3).target_mask == 0b000_111_0000
    assert Swizzle(2, 0, -2).source_mask == 0b0011
    assert Swizzle(2, 0, -2).target_mask == 0b1100
    assert Swizzle(2, 0, -2)(0b0010) == 0b1010


@given(swizzled())
@law
def test_swizzled_layout_is_the_composition(a: SwizzledLayout) -> None:
    flat = [a(i) for i in range(a.size())]
    assert flat == [a.swizzle(a.offset + a.inner(i)) for i in range(a.size())]
    assert offsets(a).tolist() == flat
    assert a.cosize() == max(flat) + 1


@given(layouts(negative=True) | swizzled())
@law
def test_table_agrees_with_calls(a: Layout | SwizzledLayout) -> None:
    sizes = tuple(mode.size() for mode in a)
    full = table(a, sizes)
    assert full.dtype == np.int64 and full.shape == sizes
    for coord in product(*(range(n) for n in sizes)):
        assert full[coord] == a(*coord)


@given(layouts(negative=True) | swizzled())
@law
def test_extremes_are_the_ends_of_all_offsets(a: Layout | SwizzledLayout) -> None:
    assert extremes(a) == (offsets(a).min(), offsets(a).max())


def test_table_of_a_large_tile_is_right_at_its_ends() -> None:
    a = parse("Sw<3,4,3> o 0 o ((8,16),(64,2)):((64,1024),(1,512))")
    full = table(a, (128, 128))
    assert sorted(full.reshape(-1).tolist()) == list(range(128 * 128))
    assert full[127, 127] == a(127, 127)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Swizzle(3, 4, 2), "source and target bits overlap"),
        (lambda: Swizzle(-1, 4, 3), "cannot be negative"),
        (lambda: Swizzle(1, 4.0, 3), "must be integers"),
        (lambda: SwizzledLayout(Swizzle(1, 0, 1), -1, Layout(8, 1)), "must be a non-negative integer"),
        (lambda: SwizzledLayout(Swizzle(1, 0, 1), 0, Layout(8, -1)), "has a negative stride"),
        (lambda: offsets(Layout(4, 1 << 61)), "reaches beyond offsets of 62 bits"),
        (lambda: offsets(Layout(4, -(1 << 61))), "reaches beyond offsets of 62 bits"),
        (lambda: extremes(parse("Sw<3,0,99> o 0 o (4,8):(8,1)")), "reaches beyond offsets of 62 bits"),
        (lambda: table(parse("(4,8)"), (8, 4)), "describes a tile of shape (4, 8), not (8, 4)"),
    ],
)
def test_bad_input(make, message) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(LayoutError, match=re.escape(message)):
        make()
