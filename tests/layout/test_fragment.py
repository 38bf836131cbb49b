"""Register tiles: coordinates, holders, and derived layouts."""

from __future__ import annotations

import re
from itertools import product

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from argus.layout import FragmentLayout, LayoutError, Mode, from_cute, parse, parse_fragment

from .strategies import fragments, law

ACCUMULATOR = parse_fragment("[16x8 | t 4@1*2 8@0 | v 2@1 2@0*8]")


def brute(f: FragmentLayout, t: int, v: int) -> tuple[int, ...]:
    """The coordinate of one register, digit by digit."""
    coord = [0] * f.rank
    for modes, index in ((f.threads, t), (f.values, v)):
        for mode in modes:
            index, digit = divmod(index, mode.extent)
            if mode.dim is not None:
                coord[mode.dim] += digit * mode.stride
    return tuple(coord)


@given(fragments())
@law
def test_coordinates(f: FragmentLayout) -> None:
    got = f.coordinates()
    assert got.shape == (f.num_threads, f.num_values, f.rank) and got.dtype == np.int32
    for t, v in product(range(f.num_threads), range(f.num_values)):
        assert tuple(got[t, v]) == brute(f, t, v)
    assert f.coordinates() is got and not got.flags.writeable


@given(fragments())
@law
def test_holders_locate_primary_and_counts_agree(f: FragmentLayout) -> None:
    locate, primary, counts = f.locate(), f.primary(), f.counts()
    for coord in product(*(range(n) for n in f.shape)):
        holders = [(t, v) for t in range(f.num_threads) for v in range(f.num_values) if brute(f, t, v) == coord]
        assert f.holders(coord) == holders
        assert counts[coord] == len(holders)
        assert [(t, v) for t, v in holders if primary[t, v]] == holders[:1]
        for t in range(f.num_threads):
            assert locate[(t, *coord)] == min((v for u, v in holders if u == t), default=-1)
    assert f.covers() == bool((counts > 0).all())
    if counts.min() == counts.max():
        assert f.replication() == counts.min()
    else:
        with pytest.raises(LayoutError, match="its replication is not one number"):
            f.replication()


@given(fragments())
@law
def test_simplify_is_the_same_function(f: FragmentLayout) -> None:
    s = f.simplify()
    assert (s.coordinates() == f.coordinates()).all()
    assert len(s.threads) <= len(f.threads) and s.simplify() == s


@given(fragments())
@law
def test_cute_form(f: FragmentLayout) -> None:
    cute = f.to_cute()
    index = np.zeros((f.num_threads, f.num_values), dtype=np.int64)
    for d in reversed(range(f.rank)):
        index = index * f.shape[d] + f.coordinates()[:, :, d]
    for t, v in product(range(f.num_threads), range(f.num_values)):
        assert cute(t, v) == index[t, v]
    back = from_cute(cute, f.shape)
    assert (back.coordinates() == f.coordinates()).all()


def test_from_cute_splits_a_mode_that_runs_through_dimensions() -> None:
    f = from_cute(parse("(32,4):(1,32)"), (16, 8))  # type: ignore[arg-type]
    assert str(f) == "[16x8 | t 16@0 2@1 | v 4@1*2]"
    with pytest.raises(LayoutError, match="crosses dimension 0"):
        from_cute(parse("(12,2):(1,12)"), (8, 3))  # type: ignore[arg-type]
    with pytest.raises(LayoutError, match="has two"):
        from_cute(parse("8:1"), (8,))  # type: ignore[arg-type]


@given(fragments(), st.data())
@law
def test_drop(f: FragmentLayout, data: st.DataObject) -> None:
    assume(f.rank > 0)
    dim = data.draw(st.integers(0, f.rank - 1))
    r = f.drop(dim)
    assert r.num_threads == f.num_threads and r.shape == f.shape[:dim] + f.shape[dim + 1 :]
    for t in range(f.num_threads):
        kept = {tuple(np.delete(c, dim)) for c in f.coordinates()[t]}
        assert {tuple(c) for c in r.coordinates()[t]} == kept


@given(fragments(), st.data(), st.integers(1, 3))
@law
def test_insert(f: FragmentLayout, data: st.DataObject, extent: int) -> None:
    dim = data.draw(st.integers(0, f.rank))
    r = f.insert(dim, extent)
    assert r.shape[dim] == extent and r.num_values == f.num_values * extent
    grown = r.coordinates().reshape(f.num_threads, extent, f.num_values, f.rank + 1)
    for k in range(extent):
        assert (np.delete(grown[:, k], dim, axis=2) == f.coordinates()).all()
        assert (grown[:, k, :, dim] == k).all()
    if extent == 1:
        assert r.drop(dim) == f


@given(fragments(), st.data())
@law
def test_permute(f: FragmentLayout, data: st.DataObject) -> None:
    dims = tuple(data.draw(st.permutations(range(f.rank))))
    r = f.permute(dims)
    assert r.shape == tuple(f.shape[d] for d in dims)
    assert (r.coordinates() == f.coordinates()[:, :, list(dims)]).all()


@given(fragments(), st.data())
@law
def test_vector_width(f: FragmentLayout, data: st.DataObject) -> None:
    assume(f.rank > 0)
    dim = data.draw(st.integers(0, f.rank - 1))
    width = f.vector_width(dim)
    runs = f.coordinates().reshape(f.num_threads, -1, width, f.rank).astype(int)
    want = runs[:, :, :1, :] + np.eye(f.rank, dtype=int)[dim] * np.arange(width)[:, None]
    assert (runs == want).all()


def test_the_accumulator_of_m16n8() -> None:
    f = ACCUMULATOR
    assert (f.num_threads, f.num_values, f.rank, f.size) == (32, 4, 2, 128)
    assert f.replication() == 1 and f.covers()
    assert f.vector_width(1) == 2 and f.vector_width(0) == 1
    assert f.holders((3, 4)) == [(14, 0)]
    assert str(f.drop(1)) == "[16 | t 4@_ 8@0 | v 2@0*8]" and f.drop(1).replication() == 4
    assert str(f.drop(1).insert(1)) == "[16x1 | t 4@_ 8@0 | v 2@0*8]"
    assert str(f.permute((1, 0))) == "[8x16 | t 4@0*2 8@1 | v 2@0 2@1*8]"
    assert str(f.to_cute()) == "((4,8),(2,2)):((32,1),(16,8))"


def test_a_scalar() -> None:
    f = FragmentLayout((), (Mode(128, None),), ())
    assert str(f) == "[() | t 128@_ | v]" and f.num_values == 1 and f.replication() == 128
    assert f.locate().tolist() == [0] * 128 and f.primary().sum() == 1 and f.holders(())[1] == (1, 0)


def test_a_replicated_mode_has_no_stride() -> None:
    assert Mode(4, None, 7) == Mode(4, None) and Mode(4, None).stride == 0


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Mode(0, 0), "mode extent 0 must be a positive integer"),
        (lambda: Mode(2, -1), "mode dimension -1"),
        (lambda: Mode(2, 0, 0), "write dim=None for a mode that moves nowhere"),
        (lambda: FragmentLayout((4,), (Mode(8, 0),), ()), "reaches coordinate 7 along dimension 0"),
        (lambda: FragmentLayout((4,), (Mode(4, 1),), ()), "along a dimension the tile (4,) does not have"),
        (lambda: FragmentLayout((0,), (), ()), "must be a tuple of positive integers"),
        (lambda: ACCUMULATOR.drop(2), "there is no dimension 2"),
        (lambda: ACCUMULATOR.insert(3), "cannot insert dimension 3"),
        (lambda: ACCUMULATOR.permute((0, 0)), "(0, 0) is not a permutation"),
        (lambda: ACCUMULATOR.holders((16, 0)), "is not inside the tile"),
    ],
)
def test_bad_input(make, message) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(LayoutError, match=re.escape(message)):
        make()
