"""A warp-specialised GEMM as the passes make it, built by hand: TMA, mbarriers, wgmma."""

from __future__ import annotations

from argus.ir.beginning import initialisation
from argus.ir.expr import Const, Coord, Elem, Expr, LoopVar, Param, ProgramId, op
from argus.ir.instruction import WGMMA
from argus.ir.instruction.tiled import wgmma_accumulator
from argus.ir.nodes import (
    Access,
    AssertTags,
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
    Once,
    Role,
    Roles,
    Shared,
    Signal,
    Spec,
    SpecOp,
    SpecReduce,
    Stmt,
    Tag,
    TagTuple,
    Tensor,
    ThreadCopy,
)
from argus.ir.types import bfloat16, float32, int64
from argus.layout import parse

C0, C1, C2 = Coord(0), Coord(1), Coord(2)
M, N, K = Param("M"), Param("N"), Param("K")
BM, BN, BK = 128, 128, 64


def add(a: Expr, b: Expr | int) -> Expr:
    return op("add", a, Const(b) if isinstance(b, int) else b)


def tensor(name: str, rows: Expr, columns: Expr, dtype: object = bfloat16) -> Tensor:
    return Tensor(name, dtype, (rows, columns), (Param(f"{name}.stride0", int64), Const(1, int64)), 16)  # type: ignore[arg-type]


def inside(index: tuple[Expr, ...], extents: tuple[Expr, ...]) -> Expr:
    parts = [op("lt", i, e) for i, e in zip(index, extents, strict=True)]
    return op("and", parts[0], parts[1])


def gemm(stages: int = 3) -> Kernel:
    """c = a @ b.T in float32; one producing warp, four computing ones."""
    k0 = LoopVar("k0")
    count = op("floordiv", k0, Const(BK))
    slot = op("mod", count, Const(stages))
    turn = op("floordiv", count, Const(stages))
    m0, n0 = op("mul", ProgramId(0), Const(BM)), op("mul", ProgramId(1), Const(BN))

    def fill(tile: str, source: str, base: Expr, extents: tuple[Expr, ...], rows: int) -> Stmt:
        index = (add(base, C0), add(k0, C1))
        return BulkCopy(
            Access(tile, (slot, C0, C1)), Access(source, index), (rows, BK), inside(index, extents),
            Const(0.0, bfloat16), "tma.load", Signal("full", slot),
        )  # fmt: skip

    def loop(*body: Stmt) -> For:
        return For("k0", Const(0), K, BK, body)

    producer = loop(
        MbarrierWait("empty", slot, op("mod", add(turn, 1), Const(2))),
        MbarrierExpect("full", slot, (BM + BN) * BK * 2),
        fill("at", "a", m0, (M, K), BM),
        fill("bt", "b", n0, (N, K), BN),
    )
    previous = op("mod", add(count, stages - 1), Const(stages))
    row = WGMMA[f"wgmma_m64n{BN}k16"]
    accumulator = wgmma_accumulator(row, (BM, BN), (4, 1))
    place = (add(m0, C0), add(n0, C1))
    compute = (
        Map(Access("acc", (C0, C1)), Const(0.0, float32), (BM, BN), accumulator, "thread"),
        loop(
            MbarrierWait("full", slot, op("mod", turn, Const(2))),
            MmaFence(),
            Mma(Access("acc", (C0, C1)), Access("at", (slot, C0, C2)), Access("bt", (slot, C1, C2)),
                (BM, BN, BK), row.name, (4, 1)),
            MmaCommit(),
            MmaWait(1),
            If(op("ge", k0, Const(BK)), (MbarrierArrive("empty", previous),)),
        ),
        MmaWait(0),
        AssertTags((BM, BN), ("i", "j"), (TagTuple(Elem("acc", (C0, C1), float32), (*place, Once(Const(0), K))),),
                   inside(place, (M, N))),
        ThreadCopy(Access("c", place), Access("acc", (C0, C1)), (BM, BN), inside(place, (M, N)), None, accumulator,
             "st.global", 2),
    )  # fmt: skip
    bytes_a = stages * BM * BK * 2
    rings = (Mbarrier("full", stages, 1, 2 * bytes_a), Mbarrier("empty", stages, 4, 2 * bytes_a + 8 * stages))
    product = SpecOp("mul", (Elem("a", (C0, C2), bfloat16), Elem("b", (C1, C2), bfloat16)), float32)
    body = (
        Tag("a", (M, K), (("m", C0), ("k", C1))),
        Tag("b", (N, K), (("n", C0), ("k", C1))),
        Spec("c", ("m", "n"), SpecReduce("add", 2, K, product, float32)),
        *initialisation(rings),
        Roles((Role("compute", 0, 4, 240, compute), Role("producer", 4, 1, 24, (producer,)))),
    )
    layout = f"Sw<3,3,3> o 0 o ({stages},{BM},{BK}):({BM * BK},{BK},1)"
    return Kernel(
        "gemm", (tensor("a", M, K), tensor("b", N, K), tensor("c", M, N, float32)), ("M", "K", "N"), (),
        (op("floordiv", add(M, BM - 1), Const(BM)), op("floordiv", add(N, BN - 1), Const(BN))), 8, 32, (),
        (Shared("at", bfloat16, (stages, BM, BK), parse(layout), 0),
         Shared("bt", bfloat16, (stages, BN, BK), parse(layout), bytes_a)),
        (Fragment("acc", float32, (BM, BN), accumulator),), body, "sm_90a",
        rings,
    )  # fmt: skip
