"""Clusters: what their blocks share is brought once, and its buffers are given back to all of them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from argus.backend.emit import emit
from argus.diagnostic import Verdict
from argus.ir.cluster import MULTICAST, rank_in_cluster, reached, that_share
from argus.ir.expr import Const, Coord, Expr, ProgramId, op
from argus.ir.nodes import Among, Copy, For, Kernel, MbarrierArrive, Stmt
from argus.ir.visit import map_exprs, rewrite_body, walk
from argus.ir.wellformed import check_explicit
from argus.passes import lower
from argus.verify import verify
from tests.passes.test_specialise import edited, gemm


def clustered(cluster: int = 2, **fields: object) -> Kernel:
    """The product of the other tests, in clusters along its rows."""
    kernel = gemm(**fields)  # type: ignore[arg-type]
    rows, columns = kernel.grid or ()
    whole = op("floordiv", op("add", rows, Const(cluster - 1)), Const(cluster))
    return replace(kernel, grid=(op("mul", whole, Const(cluster)), columns), cluster=cluster)


def loads(kernel: Kernel) -> dict[str, Copy]:
    return {s.src.obj: s for s in walk(kernel.body) if isinstance(s, Copy) and s.signal is not None}


def arrivals(kernel: Kernel) -> set[str]:
    return {s.scope for s in walk(kernel.body) if isinstance(s, MbarrierArrive)}


@pytest.mark.parametrize("cluster", [2, 4])
def test_the_tile_that_all_blocks_read_is_brought_in_shares(cluster: int) -> None:
    kernel = lower(clustered(cluster), "sm_90a")
    assert not check_explicit(kernel)
    assert kernel.cluster == cluster
    a, b = loads(kernel)["a"], loads(kernel)["b"]
    assert (a.instr, a.shape) == ("tma.load", (128, 64))
    assert (b.instr, b.shape) == (MULTICAST, (64 // cluster, 64))
    full, empty = kernel.barriers
    assert (full.arrivals, empty.arrivals) == (1, 4 * cluster)
    assert arrivals(kernel) == {"cluster"}
    assert lower(kernel, "sm_90a") == kernel


def two_by_two() -> Kernel:
    """Blocks 0 and 1 of a cluster have the same columns, 0 and 2 the same rows."""
    kernel = gemm()
    rows, columns = (op("floordiv", op("add", extent, Const(1)), Const(2)) for extent in kernel.grid or ())
    place, rank = ProgramId(0), rank_in_cluster(4)
    row = op("add", op("mul", op("floordiv", place, Const(4)), Const(2)), op("mod", rank, Const(2)))
    column = op("add", op("mul", ProgramId(1), Const(2)), op("floordiv", rank, Const(2)))

    def change(e: Expr) -> Expr | None:
        return (row, column)[e.axis] if isinstance(e, ProgramId) else None

    body = rewrite_body(kernel.body, lambda stmt: (map_exprs(stmt, change),))
    return replace(kernel, grid=(op("mul", rows, Const(4)), columns), cluster=4, body=body)


def test_each_tile_is_shared_by_the_blocks_that_read_it() -> None:
    kernel = lower(two_by_two(), "sm_90a")
    assert not check_explicit(kernel)
    a, b = loads(kernel)["a"], loads(kernel)["b"]
    assert (a.instr, a.shape, a.among) == (MULTICAST, (64, 64), Among(2, 2))
    assert (b.instr, b.shape, b.among) == (MULTICAST, (32, 64), Among(2, 1))
    _, empty = kernel.barriers
    back = [s for s in walk(kernel.body) if isinstance(s, MbarrierArrive)]
    assert {s.among for s in back} == {(Among(2, 2), Among(2, 1))}
    assert empty.arrivals == 4 * 3  # of the own block, the one beside and the one below, not of the fourth
    assert [reached(back[0].among, rank, 4) for rank in range(4)] == [(0, 1, 2), (0, 1, 3), (0, 2, 3), (1, 2, 3)]
    assert "blocks_among<2, 2>() | argus::blocks_among<2, 1>()" in emit(kernel)


@pytest.mark.slow
def test_two_by_two_is_proved() -> None:
    report = verify(lower(two_by_two(), "sm_90a"), limit_s=240)
    assert report.verdict is Verdict.PROVED, [d.message for d in report.diagnostics]


@pytest.mark.slow
def test_arrivals_that_reach_blocks_which_bring_nothing_are_not_proved() -> None:
    """Nothing keeps block 0 from arriving on the mbarriers of block 3 twice in a phase."""

    def everywhere(stmt: Stmt) -> tuple[Stmt, ...]:
        return (replace(stmt, among=()) if isinstance(stmt, MbarrierArrive) else stmt,)

    kernel = lower(two_by_two(), "sm_90a")
    full, empty = kernel.barriers
    wrong = replace(kernel, body=rewrite_body(kernel.body, everywhere), barriers=(full, replace(empty, arrivals=16)))
    assert verify(wrong, limit_s=240).verdict is Verdict.REFUTED


@pytest.mark.parametrize(
    ("groups", "share"), [("p0 // 4", (4, 1)), ("p0 // 2", (2, 1)), ("p0 % 2", (2, 2)), ("p0", None), ("p1", (4, 1))]
)
def test_blocks_for_which_an_index_is_the_same(groups: str, share: tuple[int, int] | None) -> None:
    p0 = ProgramId(0)
    exprs = {
        "p0 // 4": op("floordiv", p0, Const(4)),
        "p0 // 2": op("floordiv", rank_in_cluster(4), Const(2)),
        "p0 % 2": op("mod", rank_in_cluster(4), Const(2)),
        "p0": p0,
        "p1": ProgramId(1),
    }
    assert that_share([exprs[groups]], 4) == (None if share is None else Among(*share))


def turned(kernel: Kernel) -> Kernel:
    """The same with the two axes of the grid exchanged: blocks of a cluster then share `a`."""

    def change(e: Expr) -> Expr | None:
        return ProgramId(1 - e.axis) if isinstance(e, ProgramId) else None

    def statement(stmt: Stmt) -> tuple[Stmt, ...]:
        return (map_exprs(stmt, change),)

    return replace(kernel, body=rewrite_body(kernel.body, statement))


def test_along_the_other_axis_the_other_tile_is_shared() -> None:
    found = loads(lower(turned(clustered()), "sm_90a"))
    assert (found["a"].instr, found["a"].shape) == (MULTICAST, (64, 64))
    assert (found["b"].instr, found["b"].shape) == ("tma.load", (64, 64))


def test_rows_that_are_no_equal_shares_are_brought_by_each_block() -> None:
    kernel = lower(clustered(4, tile=(128, 72, 64)), "sm_90a")
    assert not check_explicit(kernel)
    b = [s for s in walk(kernel.body) if isinstance(s, Copy) and s.src.obj == "b"]
    assert [(s.instr, s.shape) for s in b] == [(MULTICAST, (16, 64)), ("tma.load", (8, 64))]
    assert b[1].dst.index[1] == op("add", Const(64), Coord(0))


def test_rows_that_cannot_be_shared_out() -> None:
    kernel = lower(clustered(4, tile=(128, 24, 64)), "sm_90a")  # 24 rows of b are not four times whole swizzles
    assert (kernel.cluster, arrivals(kernel)) == (1, {"block"})
    told = "the kernel has no clusters: no tile that the copy engine brings is the same in all its blocks"
    assert told in kernel.remarks[0].message


def test_blocks_that_take_other_steps() -> None:
    def causal(loop: For) -> Stmt:
        return replace(loop, stop=op("mul", ProgramId(0), Const(64)))

    kernel = lower(edited(clustered(), For, causal), "sm_90a")
    assert kernel.cluster == 1
    (remark,) = kernel.remarks
    assert "its blocks go through the loop in different steps" in remark.message


@pytest.mark.parametrize("target", ["cpu", "sm_80"])
def test_targets_without_clusters(target: str) -> None:
    kernel = lower(clustered(), target)
    assert (kernel.cluster, kernel.remarks) == (1, ())
    assert not check_explicit(kernel)


def test_a_loop_without_producers_has_no_clusters() -> None:
    kernel = lower(clustered(producer_warps=0), "sm_90a")
    assert kernel.cluster == 1
    assert not check_explicit(kernel)
