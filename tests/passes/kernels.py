"""Tile kernels as the frontend makes them, built by hand."""

from __future__ import annotations

from argus.ir.expr import Const, Coord, Elem, Expr, LoopVar, Op, Param, ProgramId, op
from argus.ir.nodes import (
    Access,
    Accumulate,
    AssertTags,
    Copy,
    For,
    Fragment,
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
            Copy(Access("xt", (C0,)), Access("x", (place,)), (block,), mask, zero),
            Copy(Access("yt", (C0,)), Access("y", (place,)), (block,), mask, zero),
            Map(Access("zt", (C0,)), total, (block,)),
            Copy(Access("out", (place,)), Access("zt", (C0,)), (block,), mask),
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
            Copy(Access("xt", (C0, C1)), Access("x", (row, C1)), shape, mask, Const(float("-inf"), float32)),
            Map(Access("top", (C0,)), Const(float("-inf"), float32), (rows,)),
            Accumulate(Access("top", (C0,)), x, "maximum", shape),
            Map(Access("et", (C0, C1)), Op("exp", (Op("sub", (x, top), float32),), float32), shape),
            Map(Access("total", (C0,)), Const(0.0, float32), (rows,)),
            Accumulate(Access("total", (C0,)), e, "add", shape),
            Map(Access("yt", (C0, C1)), Op("truediv", (e, total), float32), shape),
            Copy(Access("out", (row, C1)), Access("yt", (C0, C1)), shape, mask),
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
            Copy(Access("c", (row, column)), Access("ct", (C0, C1)), (m, n), out),
        ),
        shared=(Shared("at", dtype, (m, k)), Shared("bt", dtype, b_tile)),
        fragments=(Fragment("acc", acc_dtype, (m, n)), Fragment("ct", bfloat16, (m, n))),
        grid=tuple(op("floordiv", op("add", s, Const(t - 1)), Const(t)) for s, t in ((M, m), (N, n))),
        num_warps=num_warps,
        warp_size=warp_size,
    )  # fmt: skip
