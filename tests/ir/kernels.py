"""Kernels built by hand for the tests of the IR: a tile kernel and an explicit one, with every statement."""

from __future__ import annotations

from argus.ir.beginning import initialisation
from argus.ir.expr import Const, Coord, Elem, Expr, LoopVar, Op, Param, ProgramId, Thread, op
from argus.ir.instruction import WGMMA
from argus.ir.instruction.tiled import wgmma_accumulator
from argus.ir.nodes import (
    Access,
    Accumulate,
    AssertTags,
    Assume,
    Barrier,
    BulkCopy,
    CommitGroup,
    DataValue,
    For,
    Fragment,
    If,
    InRange,
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
    ProxyFence,
    Requires,
    Role,
    Roles,
    Scalar,
    Shared,
    Signal,
    Spec,
    SpecOp,
    SpecReduce,
    Stage,
    Tag,
    TagEqual,
    TagField,
    TagTuple,
    Tensor,
    ThreadCopy,
    WaitGroup,
)
from argus.ir.types import bfloat16, boolean, float32, int32, int64
from argus.layout import blocked, parse

C0, C1, C2 = Coord(0), Coord(1), Coord(2)
M, N, K = Param("M"), Param("N"), Param("K")


def lt(a: Expr, b: Expr) -> Expr:
    return op("lt", a, b)


def tile_gemm() -> Kernel:
    """A policy-style matrix product with tags and a specification, as the frontend makes it."""
    m0 = op("mul", ProgramId(0), Const(64))
    n0 = op("mul", ProgramId(1), Const(64))
    k0 = LoopVar("k0")
    zero = Const(0.0, bfloat16)
    a, b = Elem("a", (C0, C2), bfloat16), Elem("b", (C1, C2), bfloat16)
    acc = Elem("acc", (C0, C1), float32)
    return Kernel(
        name="gemm",
        params=(
            Tensor("a", bfloat16, (M, K), (Param("a.stride0", int64), Const(1, int64)), 16),
            Tensor("b", bfloat16, (N, K), (Param("b.stride0", int64), Const(1, int64)), 16),
            Tensor("c", bfloat16, (M, N), (Param("c.stride0", int64), Const(1, int64)), 16),
            Tensor("rows", int32, (M,), (Const(1, int64),), 4),
            Scalar("alpha", float32),
        ),
        sizes=("M", "K", "N"),
        constexprs=(("BLOCK", 64), ("scale", 0.5), ("causal", True), ("kind", 'x"y'), ("t", (1, (float32,), ()))),
        grid=(op("floordiv", op("add", M, Const(63)), Const(64)), op("floordiv", op("add", N, Const(63)), Const(64))),
        num_warps=4,
        warp_size=32,
        preconditions=(
            Requires(op("eq", op("mod", K, Const(32)), Const(0))),
            InRange("rows", Const(0), M),
            Assume(lt(op("mul", M, N), Const(1 << 30)), 'small "enough"'),
        ),
        shared=(Shared("sa", bfloat16, (64, 32)), Shared("sb", bfloat16, (64, 32))),
        fragments=(Fragment("acc", float32, (64, 64)), Fragment("out", bfloat16, (64, 64))),
        body=(
            Tag("a", (M, K), (("m", C0), ("k", C1))),
            Map(Access("acc", (C0, C1)), Const(0.0, float32), (64, 64)),
            For(
                "k0",
                Const(0),
                K,
                32,
                (
                    Stage("sa", Access("a", (op("add", m0, C0), op("add", k0, C1))), (64, 32),
                          lt(op("add", m0, C0), M), zero),
                    Stage("sb", Access("b", (op("add", n0, C0), op("add", k0, C1))), (64, 32)),
                    AssertTags((64, 64, 32), ("i", "j", "k"), (
                        TagEqual(TagField(Elem("sa", (C0, C2), bfloat16), "k"),
                                 TagField(Elem("sb", (C1, C2), bfloat16), 1)),
                        TagEqual(TagField(Elem("sa", (C0, C2), bfloat16), "m"), DataValue("rows", (C0,))),
                    )),
                    Mma(Access("acc", (C0, C1)), Access("sa", (C0, C2)), Access("sb", (C1, C2)), (64, 64, 32)),
                ),
                "pipelined",
                3,
            ),
            Map(Access("out", (C0, C1)), Op("cast", (op("mul", Param("alpha", float32), acc),), bfloat16), (64, 64)),
            AssertTags((64, 64), ("i", "j"), (
                TagTuple(acc, (op("add", m0, C0), op("add", n0, C1), Once(Const(0), K))),)),
            ThreadCopy(Access("c", (op("add", m0, C0), op("add", n0, C1))), Access("out", (C0, C1)), (64, 64),
                 op("and", lt(op("add", m0, C0), M), lt(op("add", n0, C1), N))),
            Spec("c", ("m", "n"),
                 SpecReduce("add", 2, K, SpecOp("mul", (a, SpecOp("exp", (b,), bfloat16)), bfloat16), float32)),
        ),
    )  # fmt: skip


def explicit_reduce() -> Kernel:
    """Row sums through shared memory with one asynchronous group, everything filled in."""
    tile = blocked((32, 64), 64, vector=4)
    row = blocked((32,), 64)
    inside = lt(op("add", op("mul", ProgramId(0), Const(32)), C0), M)
    x = Elem("x", (C0, C1), float32)
    return Kernel(
        name="rows",
        params=(
            Tensor("a", float32, (M, Const(64)), (Const(64, int64), Const(1, int64)), 16),
            Tensor("total", float32, (M,), (Const(1, int64),), 4),
        ),
        sizes=("M",),
        constexprs=(),
        grid=(op("floordiv", op("add", M, Const(31)), Const(32)),),
        num_warps=2,
        warp_size=32,
        preconditions=(),
        shared=(
            Shared("s", float32, (32, 64), parse("Sw<2,2,3> o 0 o (32,64):(64,1)"), 0),
            Shared("p", float32, (64,), parse("64:1"), 8192),
        ),
        fragments=(Fragment("x", float32, (32, 64), tile), Fragment("r", float32, (32,), row)),
        body=(
            ThreadCopy(Access("s", (C0, C1)), Access("a", (op("add", op("mul", ProgramId(0), Const(32)), C0), C1)),
                 (32, 64), inside, Const(0.0, float32), tile, "cp.async", 4),
            CommitGroup(),
            WaitGroup(0),
            Barrier(),
            ThreadCopy(Access("x", (C0, C1)), Access("s", (C0, C1)), (32, 64), None, None, tile, "ld.shared", 4),
            Map(Access("x", (C0, C1)), op("where", lt(x, Const(0.0, float32)), Op("neg", (x,), float32), x),
                (32, 64), tile, "thread"),
            Map(Access("r", (C0,)), Const(0.0, float32), (32,), row, "thread"),
            If(op("eq", op("mod", Thread(), Const(2)), Const(0)), (
                Accumulate(Access("total", (op("add", op("mul", ProgramId(0), Const(32)), C0),)),
                           Elem("r", (C0,), float32), "add", (32,), inside, row, "thread", "red.global"),
            ), (Accumulate(Access("r", (C0,)), Const(float("-inf"), float32), "maximum", (32,), None, row, "warp"),)),
        ),
        target="sm_80",
    )  # fmt: skip


def odd_names() -> Kernel:
    """Names and expressions that look like something else in the text form."""
    five = Op("neg", (Const(5),), int32)
    chained = Op("lt", (Op("lt", (Const(1), Const(2)), boolean), Const(True, boolean)), boolean)
    exprs: tuple[Expr, ...] = (
        Param("c0"), Param("thread", int64), Param("k"), Param("weird name"), LoopVar("gone"), LoopVar("c7"),
        Const(-5), five, Op("neg", (Op("neg", (Param("M"),), int32),), int32), Const(-5, int64), Const(1, boolean),
        Const(1, float32), Const(2.5e-7, float32), Const(1e20, float32), Const(-0.5, bfloat16), chained,
        Op("sub", (M, Op("sub", (N, K), int32)), int32), Op("sub", (Op("sub", (M, N), int32), K), int32),
        Op("mul", (Op("add", (M, N), int32), Const(-1)), int32), Op("add", (M, N), int64),
        Op("neg", (M,), int64), Op("minimum", (M, N), int64), Op("cast", (Const(3),), float32),
        Op("shl", (Op("or", (M, N), int32), Op("and", (M, Op("xor", (N, K), int32)), int32)), int32),
        Op("not", (Const(True, boolean),), boolean), Elem("nowhere", (Const(0),), float32), Elem("%1.x", (), int32),
        Op("floordiv", (M, Op("mod", (N, Op("truediv", (K, M), int32)), int32)), int32),
    )  # fmt: skip
    return Kernel(
        name="odd kernel",
        params=(Scalar("thread", float32), Scalar("c0", int32), Scalar("k", int32)),
        sizes=(),
        constexprs=(),
        grid=None,
        num_warps=1,
        warp_size=64,
        preconditions=(),
        shared=(),
        fragments=(Fragment("%1.x", int32, ()), Fragment("if", int32, (4,))),
        body=(
            For("k", Const(0), LoopVar("k"), 1, tuple(
                Map(Access("%1.x", ()), e, ()) for e in (*exprs, LoopVar("k"), Param("k"))), "unusual", 1),
            For("if", Param("if"), Const(3), 2, (If(Param("if", boolean), (Barrier(),), (Barrier(),)),),
                "dynamic", 2, 4),
            ProxyFence(),
            AssertTags((), (), ()),
            AssertTags((4,), ("for",), (TagEqual(chained, Const(True, boolean)),)),
            Tag("if", (), ()),
            ThreadCopy(Access("if", (C0,)), Access("if", (C0,)), (4,), Const(True, boolean), vector=2),
            ThreadCopy(Access("if", (C0,)), Access("if", (C0,)), (4,), None, Const(-1), instr="x-y"),
        ),
    )  # fmt: skip


def roles_gemm() -> Kernel:
    """A matrix product of two roles: one fills two stages by bulk copies, the other multiplies them."""
    m0, k0 = op("mul", ProgramId(0), Const(64)), LoopVar("k0")
    step = op("floordiv", k0, Const(64))
    stage, turn = op("mod", step, Const(2)), op("floordiv", step, Const(2))
    zero = Const(0.0, bfloat16)
    row = WGMMA["wgmma_m64n32k16"]
    acc = wgmma_accumulator(row, (64, 32), (4, 1))
    a_at, b_at = (op("add", m0, C0), op("add", k0, C1)), (C0, op("add", k0, C1))
    a_in = op("and", lt(a_at[0], M), lt(a_at[1], K))
    full = Signal("full", stage)
    fill = (
        MbarrierWait("empty", stage, op("mod", op("add", turn, Const(1)), Const(2))),
        MbarrierExpect("full", stage, 12288),
        BulkCopy(Access("at", (stage, C0, C1)), Access("a", a_at), (64, 64), a_in, zero, instr="tma.load", signal=full),
        BulkCopy(
            Access("bt", (stage, C0, C1)),
            Access("b", b_at),
            (32, 64),
            lt(b_at[1], K),
            zero,
            instr="tma.load",
            signal=full,
        ),
    )
    previous = op("mod", op("add", step, Const(1)), Const(2))
    multiply = (
        MbarrierWait("full", stage, op("mod", turn, Const(2))),
        MmaFence(),
        Mma(
            Access("acc", (C0, C1)),
            Access("at", (stage, C0, C2)),
            Access("bt", (stage, C1, C2)),
            (64, 32, 64),
            row.name,
            (4, 1),
        ),
        MmaCommit(),
        MmaWait(1),
        If(op("ge", k0, Const(64)), (MbarrierArrive("empty", previous),)),
    )
    inside = lt(op("add", m0, C0), M)
    rings = (Mbarrier("full", 2, 1, 24576), Mbarrier("empty", 2, 4, 24592))
    return Kernel(
        name="gemm",
        params=(
            Tensor("a", bfloat16, (M, K), (Param("a.stride0", int64), Const(1, int64)), 16),
            Tensor("b", bfloat16, (Const(32), K), (Param("b.stride0", int64), Const(1, int64)), 16),
            Tensor("c", float32, (M, Const(32)), (Const(32, int64), Const(1, int64)), 16),
        ),
        sizes=("M", "K"),
        constexprs=(),
        grid=(op("floordiv", op("add", M, Const(63)), Const(64)),),
        num_warps=8,
        warp_size=32,
        preconditions=(),
        shared=(
            Shared("at", bfloat16, (2, 64, 64), parse("Sw<3,3,3> o 0 o (2,64,64):(4096,64,1)"), 0),
            Shared("bt", bfloat16, (2, 32, 64), parse("Sw<3,3,3> o 0 o (2,32,64):(2048,64,1)"), 16384),
        ),
        fragments=(Fragment("acc", float32, (64, 32), acc),),
        body=(
            Tag("a", (M, K), (("m", C0), ("k", C1))),
            *initialisation(rings),
            Roles((
                Role("producer", 4, 1, 40, (For("k0", Const(0), K, 64, fill),)),
                Role("compute", 0, 4, 232, (
                    Map(Access("acc", (C0, C1)), Const(0.0, float32), (64, 32), acc, "thread"),
                    For("k0", Const(0), K, 64, multiply),
                    MmaWait(0),
                    ThreadCopy(
                        Access("c", (op("add", m0, C0), C1)), Access("acc", (C0, C1)), (64, 32), inside, None, acc,
                        "st.global", 2,
                    ),
                )),
            )),
            AssertTags((), (), ()),
        ),
        target="sm_90a",
        barriers=rings,
    )  # fmt: skip


KERNELS = (tile_gemm, explicit_reduce, odd_names, roles_gemm)
