"""Clusters: what their blocks share is brought once, and its buffers are given back to all of them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from argus.ir.cluster import MULTICAST
from argus.ir.expr import Const, Expr, ProgramId, op
from argus.ir.nodes import Copy, For, Kernel, MbarrierArrive, Stmt
from argus.ir.visit import map_exprs, rewrite_body, walk
from argus.ir.wellformed import check_explicit
from argus.passes import lower
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


