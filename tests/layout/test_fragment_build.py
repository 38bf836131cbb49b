"""Constructors of register tiles: `blocked`, `tile`, `tile_groups`, `replicate`."""

from __future__ import annotations

from math import prod

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from argus.layout import LayoutError, Mode, blocked, parse_fragment, replicate, tile, tile_groups

from .strategies import law

ATOM = parse_fragment("[16x8 | t 4@1*2 8@0 | v 2@1 2@0*8]")


@given(
    st.lists(st.sampled_from([1, 2, 3, 4, 6, 8, 16]), min_size=1, max_size=3),
    st.sampled_from([1, 2, 3, 4, 6, 8, 12, 16, 32, 64]),
    st.sampled_from([1, 2, 4, 8]),
    st.data(),
)
@law
def test_blocked(shape: list[int], threads: int, vector: int, data: st.DataObject) -> None:
    """Every element is held, equally often; values run along order[0]; surplus threads only replicate."""
    order = tuple(data.draw(st.permutations(range(len(shape)))))
    try:
        f = blocked(tuple(shape), threads, order, vector)
    except LayoutError:
        assume(False)
    assert f.num_threads == threads and f.covers()
    assert f.replication() == threads * f.num_values // prod(shape)
    assert f.replication() == 1 or f.num_values == min(vector, f.num_values)


@pytest.mark.parametrize(
    ("shape", "threads", "order", "vector", "golden"),
    [
        ((128, 64), 128, (1, 0), 8, "[128x64 | t 8@1*8 16@0 | v 8@1 8@0*16]"),
        ((128, 64), 128, (0, 1), 8, "[128x64 | t 16@0*8 8@1 | v 8@0 8@1*8]"),
        ((8, 8), 128, (1, 0), 4, "[8x8 | t 2@1*4 8@0 8@_ | v 4@1]"),
        ((6, 96), 64, (1, 0), 8, "[6x96 | t 32@1 2@0 | v 3@1*32 3@0*2]"),
        ((4, 12), 16, (1, 0), 8, "[4x12 | t 4@1 4@0 | v 3@1*4]"),
        ((256,), 128, (0,), 1, "[256 | t 128@0 | v 2@0*128]"),
        ((), 128, (), 1, "[() | t 128@_ | v]"),
    ],
)
def test_blocked_golden(shape, threads, order, vector, golden) -> None:  # type: ignore[no-untyped-def]
    assert str(blocked(shape, threads, order, vector)) == golden


def test_blocked_takes_the_widest_vector_that_works() -> None:
    assert blocked((6, 96), 48, (1, 0), 8).vector_width(1) == 4
    assert blocked((6, 12), 2, (1, 0), 8).values[0].extent == 4


def test_blocked_refuses() -> None:
    with pytest.raises(LayoutError, match="7 threads cannot share a tile of shape"):
        blocked((8, 8), 7)
    with pytest.raises(LayoutError, match="must name each of the dimensions"):
        blocked((8, 8), 4, (0, 0))
    with pytest.raises(LayoutError, match="must be positive integers"):
        blocked((8, 8), 4, vector=0)


@given(
    st.tuples(st.sampled_from([1, 2, 4]), st.sampled_from([1, 2, 4])),
    st.tuples(st.sampled_from([1, 2, 3]), st.sampled_from([1, 2, 3])),
    st.permutations([0, 1]),
)
@law
def test_tile(grid: tuple[int, int], repeats: tuple[int, int], order: list[int]) -> None:
    """Group g at grid position p holds the atom moved by p; repetition r moves it by r whole grids."""
    shape = (16 * grid[0] * repeats[0], 8 * grid[1] * repeats[1])
    f = tile(ATOM, grid, shape, tuple(order))
    assert f.replication() == 1 and f.covers()
    atom = ATOM.coordinates()
    got = f.coordinates().reshape(prod(grid), 32, prod(repeats), 4, 2)
    fast, slow = order
    for g in range(prod(grid)):
        for r in range(prod(repeats)):
            move = [0, 0]
            move[fast] = (g % grid[fast]) + grid[fast] * (r % repeats[fast])
            move[slow] = (g // grid[fast]) + grid[slow] * (r // repeats[fast])
            assert (got[g, :, r] == atom + np.array([16, 8]) * move).all()


def test_tile_golden() -> None:
    f = tile(ATOM, (2, 2), (64, 64))
    assert str(f) == "[64x64 | t 4@1*2 8@0 2@1*8 2@0*16 | v 2@1 2@0*8 4@1*16 2@0*32]"
    assert str(tile(ATOM, (2, 2), (16, 16))) == "[16x16 | t 4@1*2 8@0 2@1*8 2@_ | v 2@1 2@0*8]"
    assert tile(ATOM, (1, 1), (16, 8)) == ATOM


def test_tile_groups_replicates_and_fills_gaps() -> None:
    f = tile_groups(ATOM, (Mode(4, None), Mode(2, 0)), (64, 8))
    assert str(f) == "[64x8 | t 4@1*2 8@0 4@_ 2@0*16 | v 2@1 2@0*8 2@0*32]" and f.replication() == 4
    g = tile_groups(ATOM, (Mode(2, 0, 2),), (64, 8))
    assert str(g) == "[64x8 | t 4@1*2 8@0 2@0*32 | v 2@1 2@0*8 2@0*16]" and g.replication() == 1


def test_tile_refuses() -> None:
    with pytest.raises(LayoutError, match="does not divide a tile of shape"):
        tile(ATOM, (1, 1), (24, 8))
    with pytest.raises(LayoutError, match="one number must divide the other"):
        tile(ATOM, (2, 1), (48, 8))
    with pytest.raises(LayoutError, match="one positive integer a dimension"):
        tile(ATOM, (2,), (32, 8))
    with pytest.raises(LayoutError, match="strides must nest"):
        tile_groups(ATOM, (Mode(2, 0), Mode(2, 0)), (64, 8))


def test_replicate() -> None:
    f = replicate((2, 3), 4)
    assert str(f) == "[2x3 | t 4@_ | v 3@1 2@0]" and f.replication() == 4
    assert f.coordinates()[3].tolist() == [[i, j] for i in range(2) for j in range(3)]
