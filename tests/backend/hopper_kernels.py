"""Explicit kernels for sm_90a written by hand: copies by the copy engine, products by warpgroups, two roles."""

from __future__ import annotations

from argus.ir.beginning import initialisation
from argus.ir.expr import Const, Coord, Elem, Expr, LoopVar, Op, Param, ProgramId, coords, op
from argus.ir.instruction import WGMMA
from argus.ir.instruction.tiled import wgmma_accumulator
from argus.ir.nodes import (
    Access,
    Barrier,
    BulkCopy,
    For,
    Fragment,
    If,
    Kernel,
    Map,
    Mbarrier,
    MbarrierArrive,
    MbarrierExpect,
    MbarrierWait,
    Mma,
    MmaCommit,
    MmaFence,
    MmaWait,
    Role,
    Roles,
    Shared,
    Signal,
    Stmt,
    ThreadCopy,
)
from argus.ir.types import DType, bfloat16, float32
from argus.layout import Swizzle, SwizzledLayout, blocked, row_major
from tests.backend.emit_kernels import c, tensor

K = LoopVar("k0")


def _stage(stages: int) -> Expr:
    return op("mod", op("floordiv", K, c(64)), c(stages))


def _turn(stages: int) -> Expr:
    return op("floordiv", op("floordiv", K, c(64)), c(stages))


def _producer(block: tuple[int, int], stages: int, dtype: DType, first_warp: int) -> Role:
    stage = _stage(stages)
    copies: tuple[Stmt, ...] = tuple(
        BulkCopy(
            Access(tile, (stage, Coord(0), Coord(1))),
            Access(source, (op("add", op("mul", ProgramId(axis), c(rows)), Coord(0)), op("add", K, Coord(1)))),
            (rows, 64),
            op("and", op("lt", op("add", op("mul", ProgramId(axis), c(rows)), Coord(0)), Param(size)),
               op("lt", op("add", K, Coord(1)), Param("K"))),
            Const(0.0, dtype),
            instr="tma.load",
            signal=Signal("full", stage),
        )
        for axis, (tile, source, size, rows) in enumerate((("at", "a", "M", block[0]), ("bt", "b", "N", block[1])))
    )  # fmt: skip
    body: tuple[Stmt, ...] = (
        MbarrierWait("empty", stage, op("mod", op("add", _turn(stages), c(1)), c(2))),
        MbarrierExpect("full", stage, sum(block) * 64 * dtype.bytes),
        *copies,
    )
    return Role("producer", first_warp, 1, 40, (For("k0", c(0), Param("K"), 64, body),))


def _consumer(
    block: tuple[int, int], stages: int, n: int, warps: tuple[int, int], dtype: DType, without: str
) -> tuple[Role, tuple[Fragment, ...]]:
    row, stage, threads = WGMMA[f"wgmma_m64n{n}k16"], _stage(stages), 32 * warps[0] * warps[1]
    acc = wgmma_accumulator(row, block, warps)
    rows = blocked(block, threads, vector=8)
    previous = op("mod", op("add", op("floordiv", K, c(64)), c(stages - 1)), c(stages))
    loop: tuple[Stmt, ...] = (
        *((MbarrierWait("full", stage, op("mod", _turn(stages), c(2))),) if without != "full" else ()),
        MmaFence(),
        Mma(Access("acc", coords(2)), Access("at", (stage, Coord(0), Coord(2))),
            Access("bt", (stage, Coord(1), Coord(2))), (*block, 64), row.name, warps),
        MmaCommit(),
        MmaWait(1),
        If(op("ge", K, c(64)), (MbarrierArrive("empty", previous),)),
    )  # fmt: skip
    index = (
        op("add", op("mul", ProgramId(0), c(block[0])), Coord(0)),
        op("add", op("mul", ProgramId(1), c(block[1])), Coord(1)),
    )
    inside = op("and", op("lt", index[0], Param("M")), op("lt", index[1], Param("N")))
    rounded = Op("cast", (Elem("acc", coords(2), float32),), dtype)
    body: tuple[Stmt, ...] = (
        Map(Access("acc", coords(2)), Const(0.0, float32), block, acc, "thread"),
        For("k0", c(0), Param("K"), 64, loop),
        *((MmaWait(0),) if without != "mma" else ()),
        Map(Access("out", coords(2)), rounded, block, acc, "thread"),
        Barrier(),
        ThreadCopy(Access("scratch", coords(2)), Access("out", coords(2)), block, None, None, acc, "st.shared", 2),
        Barrier(),
        ThreadCopy(
            Access("out_rows", coords(2)), Access("scratch", coords(2)), block, None, None, rows, "ld.shared", 8
        ),
        ThreadCopy(Access("c", index), Access("out_rows", coords(2)), block, inside, None, rows, "st.global", 8),
    )
    fragments = (
        Fragment("acc", float32, block, acc),
        Fragment("out", dtype, block, acc),
        Fragment("out_rows", dtype, block, rows),
    )
    return Role("compute", 0, warps[0] * warps[1], 232 if threads == 256 else 240, body), fragments


def gemm(
    block: tuple[int, int] = (128, 256),
    stages: int = 4,
    n: int = 256,
    warps: tuple[int, int] = (8, 1),
    dtype: DType = bfloat16,
    without: str = "",
) -> Kernel:
    """c[m, n] = sum over k of a[m, k] * b[n, k]: one warp copies, `warps` compute, K in steps of 64.

    `without` leaves out a wait: "full" for the copies, "mma" for the last products.
    """
    consumer, fragments = _consumer(block, stages, n, warps, dtype, without)
    computing = warps[0] * warps[1]
    shared, offset = [], 0
    for name, rows in (("at", block[0]), ("bt", block[1])):
        layout = SwizzledLayout(Swizzle(3, 3, 3), 0, row_major((stages, rows, 64)))
        shared.append(Shared(name, dtype, (stages, rows, 64), layout, offset))
        offset += stages * rows * 64 * dtype.bytes
    # After the last product the stages are free.
    scratch = SwizzledLayout(Swizzle(3, 3, max(3, (block[1] // 8).bit_length() - 1)), 0, row_major(block))
    shared.append(Shared("scratch", dtype, block, scratch, 0))
    offset = max(offset, block[0] * block[1] * dtype.bytes)
    barriers = (Mbarrier("full", stages, 1, offset), Mbarrier("empty", stages, computing, offset + 8 * stages))
    return Kernel(
        "hopper_gemm",
        (tensor("a", dtype, "M", "K"), tensor("b", dtype, "N", "K"), tensor("c", dtype, "M", "N")),
        ("M", "K", "N"),
        (),
        None,
        computing + 4,
        32,
        (),
        tuple(shared),
        fragments,
        (
            *initialisation(barriers),
            Roles((consumer, _producer(block, stages, dtype, computing))),
        ),
        "sm_90a",
        barriers,
    )
