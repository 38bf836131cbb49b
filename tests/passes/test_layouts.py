"""How layouts of domains and tiles follow from each other."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from argus.ir.expr import Const, Coord, Expr, op
from argus.layout import FragmentLayout, blocked, parse_fragment
from argus.passes.layouts import complete, default, fills, holds, lift, project, warp_holds

C0, C1, C2 = Coord(0), Coord(1), Coord(2)
MMA = parse_fragment("[64x32 | t 4@1*2 8@0 4@0*16 | v 2@1 2@0*8 4@1*8]")
shapes = st.tuples(st.sampled_from([1, 2, 4, 16, 64]), st.sampled_from([4, 8, 32, 128]))
domains = st.builds(lambda s, v: default(s, 64, vector=v), shapes, st.sampled_from([1, 2, 4, 8])) | st.just(MMA)


@given(domains, st.sampled_from([(C0, C1), (C1, C0), (C0,), (C1,), (), (C0, Const(0), C1)]))
def test_a_projection_gives_every_thread_what_it_needs(domain: FragmentLayout, index: tuple[Expr, ...]) -> None:
    shape = tuple(domain.shape[e.axis] if isinstance(e, Coord) else 1 for e in index)
    tile = project(domain, index, shape)
    assert tile is not None and tile.covers()
    assert holds(tile, domain, index)
    assert fills(tile, domain, index)
    back = lift(tile, index, domain.shape)
    if {C0, C1} <= set(index):
        assert back == domain.simplify()


@pytest.mark.parametrize("index", [(C0, C0), (op("add", C0, Const(1)), C1), (C0, Const(1))])
def test_other_accesses_have_no_projection(index: tuple[Expr, ...]) -> None:
    assert project(MMA, index, (64, 32)) is None
    assert lift(MMA, index, (64, 32)) is None


@given(shapes, st.sampled_from([1, 2, 4, 8]))
def test_completing_a_row_layout(shape: tuple[int, int], vector: int) -> None:
    for domain in (default((shape[0], 64), 64, vector=4), MMA):
        rows = project(domain, (C0,), (domain.shape[0],))
        assert rows is not None
        whole = complete(rows, (C0,), (domain.shape[0], shape[1]), vector)
        assert whole is not None and whole.covers()
        assert project(whole, (C0,), rows.shape) == rows


@pytest.mark.parametrize("shape", [(100,), (3, 7), (96,), (5, 48), (1,), (1000, 3)])
@pytest.mark.parametrize("threads", [32, 96, 128])
def test_default_covers_any_shape(shape: tuple[int, ...], threads: int) -> None:
    layout = default(shape, threads, vector=4)
    assert layout.covers() and layout.num_threads == threads


def test_default_prefers_busy_threads_to_wide_vectors() -> None:
    assert default((256,), 128, vector=8).vector_width(0) == 2
    assert default((1024,), 128, vector=8).vector_width(0) == 8


def test_exchanges_inside_of_a_warp() -> None:
    lanes = blocked((4, 32), 128)
    assert warp_holds(lanes, lanes, (C0, op("xor", C1, Const(16))), 32)
    assert not holds(lanes, lanes, (C0, op("xor", C1, Const(16))))
    assert not warp_holds(lanes, lanes, (op("xor", C0, Const(1)), C1), 32)


def test_a_write_that_misses_replicas_does_not_fill() -> None:
    rows = parse_fragment("[16 | t 2@_ 16@0 | v]")
    half = parse_fragment("[16 | t 16@0 2@_ | v]")
    assert fills(rows, rows, (C0,))
    assert not fills(rows, half, (C0,))
