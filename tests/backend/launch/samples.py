"""Hand-built kernels: enough of the IR for a signature."""

from dataclasses import replace

from argus.ir.expr import Const, Coord, Expr, Param, op
from argus.ir.nodes import (
    Access,
    Accumulate,
    BulkCopy,
    Copy,
    Fragment,
    InRange,
    Kernel,
    Requires,
    Scalar,
    Signal,
    Stage,
    Tensor,
    ThreadCopy,
)
from argus.ir.types import DType, bfloat16, float32, int32, int64
from argus.source import SourceFile, Span

SOURCE = SourceFile("gemm.py", "def gemm(a, b, c):\n    al.requires(K % 64 == 0)\n")
REQUIRES_SPAN = Span(SOURCE, 2, 5, 2, 29)


def tensor(name: str, dtype: DType, sizes: str, strides: str = "", alignment: int = 16) -> Tensor:
    """A tensor parameter from an annotation's text; strides are symbolic, the last 1, unless given."""
    rank = len(sizes.split())
    given = strides.split() or [f"{name}.stride{i}" for i in range(rank - 1)] + ["1"]

    def extent(text: str) -> Expr:
        return Const(int(text)) if text.isdigit() else Param(text)

    def stride(text: str) -> Expr:
        return Const(int(text), int64) if text.isdigit() else Param(text, int64)

    return Tensor(name, dtype, tuple(map(extent, sizes.split())), tuple(map(stride, given)), alignment)


def cdiv(size: str, block: int) -> Expr:
    return op("floordiv", op("add", Param(size), Const(block - 1)), Const(block))


def move(dst: str, src: str) -> Copy:
    return ThreadCopy(Access(dst, (Coord(0), Coord(1))), Access(src, (Coord(0), Coord(1))), (8, 8))


def gemm(alignment: int = 16) -> Kernel:
    """c[M, N] from a[M, K] and b[N, K], blocks of 64 by 64, K a multiple of 64, with a scalar `alpha` > 0."""
    zero = op("eq", op("mod", Param("K"), Const(64)), Const(0))
    positive = op("gt", Param("alpha", float32), Const(0.0, float32))
    return Kernel(
        name="gemm",
        params=(
            tensor("a", bfloat16, "M K", alignment=alignment),
            tensor("b", bfloat16, "N K", alignment=alignment),
            tensor("c", bfloat16, "M N", alignment=alignment),
            Scalar("alpha", float32),
        ),
        sizes=("M", "K", "N"),
        constexprs=(("BLOCK", 64),),
        grid=(cdiv("M", 64), cdiv("N", 64)),
        num_warps=4,
        warp_size=32,
        preconditions=(Requires(zero, REQUIRES_SPAN), Requires(positive)),
        shared=(),
        fragments=(Fragment("f", bfloat16, (8, 8)),),
        body=(Stage("s", Access("a", (Coord(0), Coord(1))), (8, 8)), move("f", "b"), move("c", "f")),
        target="cpu",
    )


def bulk_gemm() -> Kernel:
    """`gemm` whose operands come by the copy engine, in boxes of 128 by 64 and of 256 by 64."""

    def bulk(tile: str, tensor: str, rows: int) -> Copy:
        place = (Coord(0), Coord(1))
        signal = Signal("full", Const(0))
        return BulkCopy(Access(tile, place), Access(tensor, place), (rows, 64), instr="tma.load", signal=signal)

    body = (bulk("at", "a", 128), bulk("bt", "b", 256), move("c", "f"))
    return replace(gemm(), body=body, target="sm_90a")


def gather() -> Kernel:
    """out[N, 4] from x[V, 4] through index[N], entries in [0, V); counts are accumulated in hits[V]."""
    return Kernel(
        name="gather",
        params=(
            tensor("x", float32, "V 4", "4 1"),
            tensor("index", int32, "N", alignment=4),
            tensor("out", float32, "N 4", "ldo 1"),
            tensor("hits", float32, "V", "hs", alignment=4),
        ),
        sizes=("V", "N"),
        constexprs=(),
        grid=None,
        num_warps=1,
        warp_size=32,
        preconditions=(InRange("index", Const(0), Param("V")),),
        shared=(),
        fragments=(Fragment("f", float32, (8, 8)),),
        body=(
            move("f", "x"),
            move("out", "f"),
            Accumulate(Access("hits", (Coord(0),)), Const(1.0, float32), "add", (8,)),
        ),
        target="cpu",
    )
