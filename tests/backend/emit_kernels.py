"""Explicit kernels written by hand, for the emitter and the host target."""

from __future__ import annotations

from argus.ir.expr import Const, Coord, Elem, Expr, LoopVar, Op, Param, ProgramId, Thread, coords, op
from argus.ir.instruction import MMA
from argus.ir.nodes import (
    Access,
    Accumulate,
    Barrier,
    CommitGroup,
    For,
    Fragment,
    If,
    Kernel,
    Map,
    Mma,
    Shared,
    Stmt,
    Tensor,
    ThreadCopy,
    WaitGroup,
)
from argus.ir.types import DType, bfloat16, float32, int32
from argus.layout import (
    AnyLayout,
    FragmentLayout,
    Mode,
    Swizzle,
    SwizzledLayout,
    blocked,
    parse_fragment,
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
        ThreadCopy(Access(f, coords(1)), Access(t, (index,)), (block,), mask, zero, layout, "ld.global", vector)
        for f, t in (("xf", "x"), ("yf", "y"))
    )
    total = Op("add", (Elem("xf", coords(1), float32), Elem("yf", coords(1), float32)), float32)
    return kernel(
        "add",
        tuple(tensor(n, float32, "N") for n in "xyz"),
        (
            *loads,
            Map(Access("zf", coords(1)), total, (block,), layout, "thread"),
            ThreadCopy(
                Access("z", (index,)), Access("zf", coords(1)), (block,), mask, None, layout, "st.global", vector
            ),
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
        ThreadCopy(Access("af", coords(2)), Access("a", coords(2)), (m, k), None, None, row.a, loads, 1),
        ThreadCopy(Access("bf", coords(2)), Access("b", coords(2)), (n, k), None, None, row.b, loads, 1),
        Mma(Access("acc", (Coord(0), Coord(1))), Access("af", (Coord(0), Coord(2))),
            Access("bf", (Coord(1), Coord(2))), row.shape, name, (1, 1)),
        ThreadCopy(Access("c", coords(2)), Access("acc", coords(2)), (m, n), None, None, row.c, stores, 1),
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
                ThreadCopy(Access(s, (stage, Coord(0), Coord(1))), Access(t, index), (rows, bk), mask, zero, copy,
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
                ThreadCopy(Access(f, coords(2)), Access(s, source), (rows, 16), None, None, layout, "ldmatrix", vector)
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
        ThreadCopy(Access("c", index), Access("out", coords(2)), (bm, bn), inside, None, acc, "st.global", 2),
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


def shuffles(source: FragmentLayout, dst: FragmentLayout, index: Expr) -> Kernel:
    """out[i] = x[index(i)] by a shuffle, `index` over Coord(0)."""
    size = source.shape[0]
    return kernel(
        "shuffles",
        (tensor("x", int32, "N"), tensor("out", int32, "N")),
        (
            ThreadCopy(Access("xf", coords(1)), Access("x", coords(1)), (size,), None, None, source, "ld.global", 1),
            Map(Access("yf", coords(1)), Elem("xf", (index,), int32), (size,), dst, "warp"),
            ThreadCopy(Access("out", coords(1)), Access("yf", coords(1)), (size,), None, None, dst, "st.global", 1),
        ),
        (Fragment("xf", int32, (size,), source), Fragment("yf", int32, (size,), dst)),
        sizes=("N",),
        num_warps=source.num_threads // 32,
    )


def row_sums(layout: FragmentLayout, op_name: str = "add", masked: bool = False) -> Kernel:
    """out[i] += reduction of x[i, :] within warps; with a mask, of its first L columns."""
    rows = layout.shape[0]
    row = layout.drop(1)
    mask = op("lt", Coord(1), Param("L")) if masked else None
    body = (
        ThreadCopy(Access("xf", coords(2)), Access("x", coords(2)), layout.shape, None, None, layout, "ld.global", 1),
        ThreadCopy(Access("yf", coords(1)), Access("out", coords(1)), (rows,), None, None, row, "ld.global", 1),
        Accumulate(Access("yf", (Coord(0),)), Elem("xf", coords(2), float32), op_name, layout.shape, mask, layout,
                   "warp"),
        ThreadCopy(Access("out", coords(1)), Access("yf", coords(1)), (rows,), None, None, row, "st.global", 1),
    )  # fmt: skip
    return kernel(
        "row_sums",
        (tensor("x", float32, "M", "N"), tensor("out", float32, "M")),
        body,
        (Fragment("xf", float32, layout.shape, layout), Fragment("yf", float32, (rows,), row)),
        sizes=("M", "N", "L"),
        num_warps=layout.num_threads // 32,
    )


def histogram() -> Kernel:
    """count[x[i]] += 1 for x[i] >= 0, and the largest of x, atomically; each element by one of its holders."""
    layout = parse_fragment("[64 | t 32@0 2@_ | v 2@0*32]")
    value = Elem("xf", coords(1), int32)
    index = op("add", op("mul", ProgramId(0), c(64)), Coord(0))
    inside = op("lt", index, Param("N"))
    body = (
        ThreadCopy(Access("xf", coords(1)), Access("x", (index,)), (64,), inside, c(-1), layout, "ld.global", 1),
        Accumulate(Access("count", (value,)), c(1), "add", (64,), op("ge", value, c(0)), layout, None, "red.global"),
        Accumulate(Access("top", (c(0),)), value, "maximum", (64,), None, layout, None, "red.global"),
    )
    return kernel(
        "histogram",
        (tensor("x", int32, "N"), tensor("count", int32, "C"), tensor("top", int32, "One")),
        body,
        (Fragment("xf", int32, (64,), layout),),
        sizes=("N", "C", "One"),
        num_warps=2,
    )


def gather_loop() -> Kernel:
    """out[i, :] = 2 * x[rows[i], :], half of the threads, in a loop over columns, odd blocks negated."""
    layout = blocked((8, 8), 64)
    line = parse_fragment("[8 | t 8@_ 8@0 | v]")
    at, j = op("add", op("mul", ProgramId(0), c(8)), Coord(0)), op("add", LoopVar("register"), Coord(1))
    inside = op("and", op("lt", at, Param("M")), op("lt", j, Param("N")))
    row = Elem("rf", (Coord(0),), int32)
    value = Elem("vf", coords(2), float32)
    two = Const(2.0, float32)
    odd = op("eq", op("mod", ProgramId(0), c(2)), c(1))
    half = op("lt", Thread(), c(64))
    step = (
        ThreadCopy(Access("vf", coords(2)), Access("x", (row, j)), (8, 8), inside, Const(0.0, float32), layout,
             "ld.global", 1),
        If(odd,
           (Map(Access("vf", coords(2)), Op("neg", (value,), float32), (8, 8), layout, "thread"),),
           (Map(Access("vf", coords(2)), Op("mul", (value, Const(1.0, float32)), float32), (8, 8), layout, "thread"),)),
        ThreadCopy(Access("out", (at, j)), Access("vf", coords(2)), (8, 8), inside, None, layout, "st.global", 1),
    )  # fmt: skip
    body = (
        ThreadCopy(Access("rf", (Coord(0),)), Access("rows", (at,)), (8,), op("lt", at, Param("M")), c(0), line,
             "ld.global", 1),
        For("register", c(0), Param("N"), 8, (
            *step[:1],
            Map(Access("vf", coords(2)), Op("mul", (value, two), float32), (8, 8), layout, "thread"),
            *step[1:],
        )),
        If(op("not", half), (Barrier(),), (Barrier(),)),
    )  # fmt: skip
    return kernel(
        "int",
        (tensor("x", float32, "K", "N"), tensor("rows", int32, "M"), tensor("out", float32, "M", "N")),
        body,
        (Fragment("rf", int32, (8,), line), Fragment("vf", float32, (8, 8), layout)),
        sizes=("K", "N", "M"),
        num_warps=2,
    )


def elementwise(outputs: dict[str, Expr], inputs: dict[str, DType], size: int = 64) -> Kernel:
    """Each output[i] = its expression over registers named as the inputs; all of one block."""
    layout = blocked((size,), 32)
    body: list[Stmt] = [
        ThreadCopy(Access(f"{n}f", coords(1)), Access(n, coords(1)), (size,), None, None, layout, "ld.global", 1)
        for n in inputs
    ]
    for n, value in outputs.items():
        body += [
            Map(Access(f"{n}f", coords(1)), value, (size,), layout, "thread"),
            ThreadCopy(Access(n, coords(1)), Access(f"{n}f", coords(1)), (size,), None, None, layout, "st.global", 1),
        ]
    dtypes = {**inputs, **{n: value.dtype for n, value in outputs.items()}}
    return kernel(
        "elementwise",
        tuple(tensor(n, d, "N") for n, d in dtypes.items()),
        tuple(body),
        tuple(Fragment(f"{n}f", d, (size,), layout) for n, d in dtypes.items()),
        sizes=("N",),
    )


def rotated(layout: AnyLayout) -> Kernel:
    """out[i, j ^ 1] = sum over s < 3 of x[i, (j + s) % 16], x through a shared tile of any layout."""
    fill = parse_fragment("[32x16 | t 16@1 2@0 | v 16@0*2]")
    read = parse_fragment("[32x16 | t 4@1*4 8@0 | v 4@1 4@0*8]")
    shape, shift = (32, 16), op("mod", op("add", Coord(1), LoopVar("s")), c(16))
    swapped = (Coord(0), op("xor", Coord(1), c(1)))
    body = (
        ThreadCopy(Access("xf", coords(2)), Access("x", coords(2)), shape, None, None, fill, "ld.global", 1),
        ThreadCopy(Access("tile", coords(2)), Access("xf", coords(2)), shape, None, None, fill, "st.shared", 1),
        Map(Access("sum", coords(2)), c(0), shape, read, "thread"),
        Barrier(),
        For("s", c(0), Param("S"), 1, (
            ThreadCopy(
                Access("part", coords(2)), Access("tile", (Coord(0), shift)), shape, None, None, read, "ld.shared", 1
            ),
            Accumulate(Access("sum", swapped), Elem("part", coords(2), int32), "add", shape, None, read, "thread"),
        )),
        ThreadCopy(Access("out", coords(2)), Access("sum", coords(2)), shape, None, None, read, "st.global", 4),
    )  # fmt: skip
    fragments = (Fragment("xf", int32, shape, fill), Fragment("part", int32, shape, read),
                 Fragment("sum", int32, shape, read))  # fmt: skip
    tensors = (tensor("x", int32, "M", "N"), tensor("out", int32, "M", "N"))
    tile = Shared("tile", int32, shape, layout, 256)
    return kernel("rotated", tensors, body, fragments, (tile,), ("M", "N", "S"))
