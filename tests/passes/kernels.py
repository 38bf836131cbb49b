"""Tile kernels as the frontend makes them, built by hand."""

from __future__ import annotations

from argus.ir.expr import Const, Coord, Elem, Expr, LoopVar, Op, Param, ProgramId, op
from argus.ir.nodes import (
    Access,
    Accumulate,
    AssertTags,
    For,
    Fragment,
    InRange,
    Kernel,
    Map,
    Mma,
    Shared,
    Stage,
    Stmt,
    Tag,
    TagEqual,
    TagField,
    Tensor,
    ThreadCopy,
)
from argus.ir.types import DType, bfloat16, float32, int64

C0, C1, C2 = Coord(0), Coord(1), Coord(2)
M, N, K = Param("M"), Param("N"), Param("K")


def lt(a: Expr, b: Expr) -> Expr:
    return op("lt", a, b)


def both(a: Expr, b: Expr) -> Expr:
    return op("and", a, b)


def matrix(name: str, dtype: DType, rows: Expr, columns: Expr, alignment: int = 16) -> Tensor:
    return Tensor(name, dtype, (rows, columns), (Param(f"{name}.stride0", int64), Const(1, int64)), alignment)


def vector(name: str, dtype: DType, extent: Expr) -> Tensor:
    return Tensor(name, dtype, (extent,), (Const(1, int64),), 16)


def kernel(name: str, params: tuple[Tensor, ...], body: tuple[Stmt, ...], **rest: object) -> Kernel:
    sizes = dict.fromkeys(e.name for t in params for e in t.shape if isinstance(e, Param))
    fields: dict[str, object] = {
        "sizes": tuple(sizes), "constexprs": (), "grid": None, "num_warps": 4, "warp_size": 32,
        "preconditions": (), "shared": (), "fragments": (),
    }  # fmt: skip
    return Kernel(name=name, params=params, body=body, **{**fields, **rest})  # type: ignore[arg-type]


def add(block: int = 1024, num_warps: int = 4, warp_size: int = 32) -> Kernel:
    """out = x + y."""
    place = op("add", op("mul", ProgramId(0), Const(block)), C0)
    mask = lt(place, N)
    zero = Const(0.0, float32)
    total = Op("add", (Elem("xt", (C0,), float32), Elem("yt", (C0,), float32)), float32)
    return kernel(
        "add",
        tuple(vector(n, float32, N) for n in ("x", "y", "out")),
        (
            ThreadCopy(Access("xt", (C0,)), Access("x", (place,)), (block,), mask, zero),
            ThreadCopy(Access("yt", (C0,)), Access("y", (place,)), (block,), mask, zero),
            Map(Access("zt", (C0,)), total, (block,)),
            ThreadCopy(Access("out", (place,)), Access("zt", (C0,)), (block,), mask),
        ),
        fragments=tuple(Fragment(n, float32, (block,)) for n in ("xt", "yt", "zt")),
        grid=(op("floordiv", op("add", N, Const(block - 1)), Const(block)),),
        num_warps=num_warps,
        warp_size=warp_size,
    )


def softmax(rows: int = 1, block: int = 1024, num_warps: int = 4, warp_size: int = 32) -> Kernel:
    """Softmax of the last axis, `rows` rows a block."""
    row = op("add", op("mul", ProgramId(0), Const(rows)), C0)
    mask = both(lt(row, M), lt(C1, N))
    shape = (rows, block)
    x, e = Elem("xt", (C0, C1), float32), Elem("et", (C0, C1), float32)
    top, total = Elem("top", (C0,), float32), Elem("total", (C0,), float32)
    return kernel(
        "softmax",
        (matrix("x", float32, M, N), matrix("out", float32, M, N)),
        (
            ThreadCopy(Access("xt", (C0, C1)), Access("x", (row, C1)), shape, mask, Const(float("-inf"), float32)),
            Map(Access("top", (C0,)), Const(float("-inf"), float32), (rows,)),
            Accumulate(Access("top", (C0,)), x, "maximum", shape),
            Map(Access("et", (C0, C1)), Op("exp", (Op("sub", (x, top), float32),), float32), shape),
            Map(Access("total", (C0,)), Const(0.0, float32), (rows,)),
            Accumulate(Access("total", (C0,)), e, "add", shape),
            Map(Access("yt", (C0, C1)), Op("truediv", (e, total), float32), shape),
            ThreadCopy(Access("out", (row, C1)), Access("yt", (C0, C1)), shape, mask),
        ),
        fragments=(
            *(Fragment(n, float32, shape) for n in ("xt", "et", "yt")),
            *(Fragment(n, float32, (rows,)) for n in ("top", "total")),
        ),
        grid=(op("floordiv", op("add", M, Const(rows - 1)), Const(rows)),),
        num_warps=num_warps,
        warp_size=warp_size,
    )


def gemm(
    tile: tuple[int, int, int] = (64, 64, 32),
    stages: int = 3,
    dtype: DType = bfloat16,
    *,
    num_warps: int = 4,
    warp_size: int = 32,
    alignment: int = 16,
    b_by_columns: bool = False,
) -> Kernel:
    """c = a @ b.T, or a @ b for b of [K, N], policy style with masks on every edge."""
    m, n, k = tile
    m0, n0 = op("mul", ProgramId(0), Const(m)), op("mul", ProgramId(1), Const(n))
    k0 = LoopVar("k0")
    zero = Const(0.0 if dtype.is_float else 0, dtype)
    row, column = op("add", m0, C0), op("add", n0, C1)
    a_at = (row, op("add", k0, C1))
    a_mask = both(lt(a_at[0], M), lt(a_at[1], K))
    if b_by_columns:
        b_at: tuple[Expr, ...] = (op("add", k0, C0), op("add", n0, C1))
        b_mask, b_tile, b_use = both(lt(b_at[0], K), lt(b_at[1], N)), (k, n), (C2, C1)
        b = matrix("b", dtype, K, N, alignment)
    else:
        b_at = (op("add", n0, C0), op("add", k0, C1))
        b_mask, b_tile, b_use = both(lt(b_at[0], N), lt(b_at[1], K)), (n, k), (C1, C2)
        b = matrix("b", dtype, N, K, alignment)
    out = both(lt(row, M), lt(column, N))
    acc_dtype = float32 if dtype.is_float else DType("int32", "int", 32)
    acc = Elem("acc", (C0, C1), acc_dtype)
    return kernel(
        "gemm",
        (matrix("a", dtype, M, K, alignment), b, matrix("c", bfloat16, M, N, alignment)),
        (
            Tag("a", (M, K), (("m", C0), ("k", C1))),
            Map(Access("acc", (C0, C1)), Const(0.0 if dtype.is_float else 0, acc_dtype), (m, n)),
            For("k0", Const(0), K, k, (
                Stage("at", Access("a", a_at), (m, k), a_mask, zero),
                Stage("bt", Access("b", b_at), b_tile, b_mask, zero),
                AssertTags((m, n, k), ("i", "j", "k"), (
                    TagEqual(TagField(Elem("at", (C0, C2), dtype), "k"), op("add", k0, C2)),)),
                Mma(Access("acc", (C0, C1)), Access("at", (C0, C2)), Access("bt", b_use), (m, n, k)),
            ), "pipelined", stages),
            Map(Access("ct", (C0, C1)), Op("cast", (acc,), bfloat16), (m, n)),
            ThreadCopy(Access("c", (row, column)), Access("ct", (C0, C1)), (m, n), out),
        ),
        shared=(Shared("at", dtype, (m, k)), Shared("bt", dtype, b_tile)),
        fragments=(Fragment("acc", acc_dtype, (m, n)), Fragment("ct", bfloat16, (m, n))),
        grid=tuple(op("floordiv", op("add", s, Const(t - 1)), Const(t)) for s, t in ((M, m), (N, n))),
        num_warps=num_warps,
        warp_size=warp_size,
    )  # fmt: skip


def transpose(
    block: int = 32, dtype: DType = float32, alignment: int = 16, *, num_warps: int = 4, warp_size: int = 32
) -> Kernel:
    """out = x.T through registers."""
    row = op("add", op("mul", ProgramId(0), Const(block)), C0)
    column = op("add", op("mul", ProgramId(1), Const(block)), C1)
    out_row = op("add", op("mul", ProgramId(1), Const(block)), C0)
    out_column = op("add", op("mul", ProgramId(0), Const(block)), C1)
    shape = (block, block)
    return kernel(
        "transpose",
        (matrix("x", dtype, M, N, alignment), matrix("out", dtype, N, M, alignment)),
        (
            ThreadCopy(Access("t", (C0, C1)), Access("x", (row, column)), shape, both(lt(row, M), lt(column, N)),
                 Const(0.0, dtype)),
            Map(Access("u", (C0, C1)), Elem("t", (C1, C0), dtype), shape),
            ThreadCopy(Access("out", (out_row, out_column)), Access("u", (C0, C1)), shape,
                 both(lt(out_row, N), lt(out_column, M))),
        ),
        fragments=(Fragment("t", dtype, shape), Fragment("u", dtype, shape)),
        grid=tuple(op("floordiv", op("add", s, Const(block - 1)), Const(block)) for s in (M, N)),
        num_warps=num_warps,
        warp_size=warp_size,
    )  # fmt: skip


def column_sums(block: int = 64, *, num_warps: int = 4, warp_size: int = 32) -> Kernel:
    """total[n] = sum of x[:, n] over a loop of row blocks; each block of columns has one thread block."""
    column = op("add", op("mul", ProgramId(0), Const(block)), C1)
    row = op("add", LoopVar("r"), C0)
    shape = (32, block)
    place = op("add", op("mul", ProgramId(0), Const(block)), C0)
    return kernel(
        "column_sums",
        (matrix("x", float32, M, N), vector("total", float32, N)),
        (
            Map(Access("sums", (C0,)), Const(0.0, float32), (block,)),
            For("r", Const(0), M, 32, (
                ThreadCopy(Access("t", (C0, C1)), Access("x", (row, column)), shape, both(lt(row, M), lt(column, N)),
                     Const(0.0, float32)),
                Accumulate(Access("sums", (C1,)), Elem("t", (C0, C1), float32), "add", shape),
            )),
            ThreadCopy(Access("total", (place,)), Access("sums", (C0,)), (block,), lt(place, N)),
        ),
        fragments=(Fragment("t", float32, shape), Fragment("sums", float32, (block,))),
        grid=(op("floordiv", op("add", N, Const(block - 1)), Const(block)),),
        num_warps=num_warps,
        warp_size=warp_size,
    )  # fmt: skip


def gather(block: int = 64, *, num_warps: int = 4, warp_size: int = 32) -> Kernel:
    """out[m, :] = table[rows[m], :]: an index tile read in a two-dimensional domain, and a scalar loaded twice."""
    row = op("add", op("mul", ProgramId(0), Const(16)), C0)
    inside = lt(row, M)
    mask = both(inside, lt(C1, N))
    shape = (16, block)
    chosen = Elem("index", (C0,), DType("int32", "int", 32))
    return kernel(
        "gather",
        (vector("rows", DType("int32", "int", 32), M), matrix("table", float32, K, N), matrix("out", float32, M, N)),
        (
            ThreadCopy(Access("index", (C0,)), Access("rows", (row,)), (16,), inside, Const(0)),
            ThreadCopy(Access("t", (C0, C1)), Access("table", (chosen, C1)), shape, mask, Const(0.0, float32)),
            ThreadCopy(Access("out", (row, C1)), Access("t", (C0, C1)), shape, mask),
        ),
        preconditions=(InRange("rows", Const(0), K),),
        fragments=(Fragment("index", DType("int32", "int", 32), (16,)), Fragment("t", float32, shape)),
        grid=(op("floordiv", op("add", M, Const(15)), Const(16)),),
        num_warps=num_warps,
        warp_size=warp_size,
    )


def attention(
    rows: int = 64, keys: int = 32, depth: int = 32, stages: int = 2, *, num_warps: int = 4, warp_size: int = 32
) -> Kernel:
    """out = softmax(q @ k.T) @ v of one head, online; q of [M, depth], k and v of [N, depth]."""
    row = op("add", op("mul", ProgramId(0), Const(rows)), C0)
    j = LoopVar("j")
    key = op("add", j, C0)
    d = Const(depth)
    low = Const(float("-inf"), float32)
    zero, none = Const(0.0, bfloat16), Const(0.0, float32)
    tile, scores = (rows, depth), (rows, keys)
    s, p = Elem("s", (C0, C1), float32), Elem("p", (C0, C1), float32)
    old, new, scale = (Elem(n, (C0,), float32) for n in ("top", "new", "scale"))
    sum_, acc = Elem("sum", (C0,), float32), Elem("acc", (C0, C1), float32)
    masked = op("where", lt(op("add", j, C1), N), s, low)

    def f(name: str, *args: Expr) -> Expr:
        return Op(name, args, float32)

    return kernel(
        "attention",
        (matrix("q", bfloat16, M, d), matrix("k", bfloat16, N, d), matrix("v", bfloat16, N, d),
         matrix("out", float32, M, d)),
        (
            Stage("qt", Access("q", (row, C1)), tile, lt(row, M), zero),
            Map(Access("top", (C0,)), Const(-1e30, float32), (rows,)),
            Map(Access("sum", (C0,)), none, (rows,)),
            Map(Access("acc", (C0, C1)), none, tile),
            For("j", Const(0), N, keys, (
                Stage("kt", Access("k", (key, C1)), (keys, depth), lt(key, N), zero),
                Stage("vt", Access("v", (key, C1)), (keys, depth), lt(key, N), zero),
                Map(Access("s", (C0, C1)), none, scores),
                Mma(Access("s", (C0, C1)), Access("qt", (C0, C2)), Access("kt", (C1, C2)), (rows, keys, depth)),
                Map(Access("s", (C0, C1)), masked, scores),
                Map(Access("new", (C0,)), old, (rows,)),
                Accumulate(Access("new", (C0,)), s, "maximum", scores),
                Map(Access("scale", (C0,)), f("exp", f("sub", old, new)), (rows,)),
                Map(Access("p", (C0, C1)), f("exp", f("sub", s, new)), scores),
                Map(Access("sum", (C0,)), f("mul", sum_, scale), (rows,)),
                Accumulate(Access("sum", (C0,)), p, "add", scores),
                Map(Access("acc", (C0, C1)), f("mul", acc, scale), tile),
                Map(Access("pb", (C0, C1)), Op("cast", (p,), bfloat16), scores),
                Mma(Access("acc", (C0, C1)), Access("pb", (C0, C2)), Access("vt", (C2, C1)), (rows, depth, keys)),
                Map(Access("top", (C0,)), new, (rows,)),
            ), "pipelined", stages),
            Map(Access("o", (C0, C1)), f("truediv", acc, sum_), tile),
            ThreadCopy(Access("out", (row, C1)), Access("o", (C0, C1)), tile, lt(row, M)),
        ),
        shared=(Shared("qt", bfloat16, tile), Shared("kt", bfloat16, (keys, depth)),
                Shared("vt", bfloat16, (keys, depth))),
        fragments=(
            *(Fragment(n, float32, (rows,)) for n in ("top", "new", "scale", "sum")),
            *(Fragment(n, float32, scores) for n in ("s", "p")),
            Fragment("pb", bfloat16, scores),
            *(Fragment(n, float32, tile) for n in ("acc", "o")),
        ),
        grid=(op("floordiv", op("add", M, Const(rows - 1)), Const(rows)),),
        num_warps=num_warps,
        warp_size=warp_size,
    )  # fmt: skip
