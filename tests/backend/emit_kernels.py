"""Explicit kernels written by hand, for the emitter and the host target."""

from __future__ import annotations

from argus.ir.expr import Const, Coord, Elem, Expr, LoopVar, Op, Param, ProgramId, coords, op
from argus.ir.instruction import MMA
from argus.ir.nodes import (
    Access,
    Barrier,
    CommitGroup,
    Copy,
    For,
    Fragment,
    Kernel,
    Map,
    Mma,
    Shared,
    Stmt,
    Tensor,
    WaitGroup,
)
from argus.ir.types import DType, bfloat16, float32
from argus.layout import (
    Mode,
    Swizzle,
    SwizzledLayout,
    blocked,
    row_major,
    tile,
    tile_groups,
)


def kernel(
    name: str,
    tensors: tuple[Tensor, ...],
    body: tuple[Stmt, ...],
    fragments: tuple[Fragment, ...] = (),
    shared: tuple[Shared, ...] = (),
    sizes: tuple[str, ...] = (),
    num_warps: int = 1,
    warp_size: int = 32,
    target: str = "cpu",
) -> Kernel:
    return Kernel(name, tensors, sizes, (), None, num_warps, warp_size, (), shared, fragments, body, target=target)


def c(value: int) -> Const:
    return Const(value)


def tensor(name: str, dtype: DType, *sizes: str) -> Tensor:
    """Row-major with symbolic strides but the last."""
    strides: list[Expr] = [Param(f"{name}.stride{i}") for i in range(len(sizes) - 1)]
    return Tensor(name, dtype, tuple(Param(s) for s in sizes), (*strides, c(1)), 16)


def vector_add(num_warps: int = 2, vector: int = 4, masked: bool = True) -> Kernel:
    """z = x + y, `num_warps * 32 * vector * 2` elements a block."""
    block = num_warps * 32 * vector * 2
    layout = blocked((block,), num_warps * 32, vector=vector)
    index = op("add", op("mul", ProgramId(0), c(block)), Coord(0))
    mask = op("lt", index, Param("N")) if masked else None
    zero = Const(0.0, float32)
    loads = tuple(
        Copy(Access(f, coords(1)), Access(t, (index,)), (block,), mask, zero, layout, "ld.global", vector)
        for f, t in (("xf", "x"), ("yf", "y"))
    )
    total = Op("add", (Elem("xf", coords(1), float32), Elem("yf", coords(1), float32)), float32)
    return kernel(
        "add",
        tuple(tensor(n, float32, "N") for n in "xyz"),
        (
            *loads,
            Map(Access("zf", coords(1)), total, (block,), layout, "thread"),
            Copy(Access("z", (index,)), Access("zf", coords(1)), (block,), mask, None, layout, "st.global", vector),
        ),
        tuple(Fragment(f"{n}f", float32, (block,), layout) for n in "xyz"),
        sizes=("N",),
        num_warps=num_warps,
    )


def one_mma(name: str, dtype: DType, loads: str = "ld.global", stores: str = "st.global") -> Kernel:
    """c[m, n] = sum over k of a[m, k] * b[n, k] by one matrix instruction, element by element from memory."""
    row = MMA[name]
    m, n, k = row.shape
    zero = Const(0.0 if row.accumulator.is_float else 0, row.accumulator)
    body = (
        Map(Access("acc", coords(2)), zero, (m, n), row.c, "thread"),
        Copy(Access("af", coords(2)), Access("a", coords(2)), (m, k), None, None, row.a, loads, 1),
        Copy(Access("bf", coords(2)), Access("b", coords(2)), (n, k), None, None, row.b, loads, 1),
        Mma(Access("acc", (Coord(0), Coord(1))), Access("af", (Coord(0), Coord(2))),
            Access("bf", (Coord(1), Coord(2))), row.shape, name, (1, 1)),
        Copy(Access("c", coords(2)), Access("acc", coords(2)), (m, n), None, None, row.c, stores, 1),
    )  # fmt: skip
    fragments = (
        Fragment("acc", row.accumulator, (m, n), row.c),
        Fragment("af", dtype, (m, k), row.a),
        Fragment("bf", dtype, (n, k), row.b),
    )
    tensors = (
        tensor("a", dtype, "M", "K"), tensor("b", dtype, "N", "K"), tensor("c", row.accumulator, "M", "N")
    )  # fmt: skip
    return kernel("product", tensors, body, fragments, (), ("M", "K", "N"), 1, row.warp_size)


def gemm(
    num_warps: tuple[int, int] = (2, 2),
    block: tuple[int, int, int] = (64, 64, 32),
    stages: int = 2,
    wait: bool = True,
) -> Kernel:
    """c[m, n] = sum over k of a[m, k] * b[n, k] in bfloat16: cp.async into swizzled stages, ldmatrix, mma."""
    bm, bn, bk = block
    warps, row = num_warps[0] * num_warps[1], MMA["mma_m16n8k16"]
    threads = 32 * warps
    acc = tile(row.c, num_warps, (bm, bn))
    af = tile_groups(row.a, (Mode(num_warps[1], None), Mode(num_warps[0], 0)), (bm, 16))
    bf = tile_groups(row.b, (Mode(num_warps[1], 0), Mode(num_warps[0], None)), (bn, 16))
    swizzle = Swizzle(3, 3, 3) if bk == 64 else Swizzle(2, 3, 3)
    shared = []
    offset = 0
    for name, rows in (("as", bm), ("bs", bn)):
        layout = SwizzledLayout(swizzle, 0, row_major((stages, rows, bk)))
        shared.append(Shared(name, bfloat16, (stages, rows, bk), layout, offset))
        offset += stages * rows * bk * 2
    m0, n0 = op("mul", ProgramId(0), c(bm)), op("mul", ProgramId(1), c(bn))
    zero = Const(0.0, bfloat16)

    def fill(k: Expr, guard: Expr | None = None) -> tuple[Stmt, ...]:
        result: list[Stmt] = []
        stage = op("mod", op("floordiv", k, c(bk)), c(stages))
        for s, t, origin, rows in (("as", "a", m0, bm), ("bs", "b", n0, bn)):
            copy = blocked((rows, bk), threads, vector=8)
            size = "M" if t == "a" else "N"
            index = (op("add", origin, Coord(0)), op("add", k, Coord(1)))
            mask = op("and", op("lt", index[0], Param(size)), op("lt", index[1], Param("K")))
            result.append(
                Copy(Access(s, (stage, Coord(0), Coord(1))), Access(t, index), (rows, bk), mask, zero, copy,
                     "cp.async", 8)
            )  # fmt: skip
        return (*result, CommitGroup())

    k = LoopVar("k")
    stage = op("mod", op("floordiv", k, c(bk)), c(stages))
    steps: list[Stmt] = []
    for kk in range(0, bk, 16):
        for f, s, layout, rows in (("af", "as", af, bm), ("bf", "bs", bf, bn)):
            source = (stage, Coord(0), op("add", Coord(1), c(kk)))
            vector = 8 if f == "af" else 4
            steps.append(
                Copy(Access(f, coords(2)), Access(s, source), (rows, 16), None, None, layout, "ldmatrix", vector)
            )
        steps.append(
            Mma(Access("acc", (Coord(0), Coord(1))), Access("af", (Coord(0), Coord(2))),
                Access("bf", (Coord(1), Coord(2))), (bm, bn, 16), "mma_m16n8k16", num_warps)
        )  # fmt: skip
    body: list[Stmt] = [Map(Access("acc", coords(2)), Const(0.0, float32), (bm, bn), acc, "thread")]
    for s in range(stages - 1):
        body += fill(c(s * bk))
    loop = (
        *((WaitGroup(stages - 2),) if wait else ()),
        Barrier(),
        *fill(op("add", k, c((stages - 1) * bk))),
        *steps,
    )
    body.append(For("k", c(0), Param("K"), bk, loop))
    index = (op("add", m0, Coord(0)), op("add", n0, Coord(1)))
    inside = op("and", op("lt", index[0], Param("M")), op("lt", index[1], Param("N")))
    body += [
        Map(
            Access("out", coords(2)), Op("cast", (Elem("acc", coords(2), float32),), bfloat16), (bm, bn), acc, "thread"
        ),
        Copy(Access("c", index), Access("out", coords(2)), (bm, bn), inside, None, acc, "st.global", 2),
    ]
    return kernel(
        "gemm",
        (tensor("a", bfloat16, "M", "K"), tensor("b", bfloat16, "N", "K"), tensor("c", bfloat16, "M", "N")),
        tuple(body),
        (Fragment("acc", float32, (bm, bn), acc), Fragment("af", bfloat16, (bm, 16), af),
         Fragment("bf", bfloat16, (bn, 16), bf), Fragment("out", bfloat16, (bm, bn), acc)),
        tuple(shared),
        ("M", "K", "N"),
        warps,
    )  # fmt: skip
