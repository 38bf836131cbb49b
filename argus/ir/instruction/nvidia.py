"""NVIDIA instructions. Documents: PTX ISA 9.0, section named in each row."""

from __future__ import annotations

from argus.ir.instruction.row import CopyRow, MmaRow, Order, Row
from argus.ir.types import (
    DType,
    bfloat16,
    float8_e4m3fn,
    float8_e5m2,
    float16,
    float32,
    int8,
    int32,
    tfloat32,
)
from argus.layout import parse_fragment

_ALL = ("sm_80",)
_HOPPER = ("sm_90a",)
_ACCUMULATOR = "[16x8 | t 4@1*2 8@0 | v 2@1 2@0*8]"


def _mma(
    name: str,
    k: int,
    operands: tuple[DType, ...],
    accumulator: DType,
    a: str,
    b: str,
    architectures: tuple[str, ...],
    document: str,
) -> MmaRow:
    """A row of shape 16x8xk: all of them share the accumulator's layout."""
    layouts = (parse_fragment(a), parse_fragment(b), parse_fragment(_ACCUMULATOR))
    return MmaRow(name, (16, 8, k), operands, accumulator, *layouts, 32, architectures, document)


# ldmatrix: `vector` value digits of a lane (4, 8 or 16 bytes) are 1, 2 or 4 matrices of 8 rows of 16 bytes:
# four bytes a lane from each; lane i holds bytes 4 * (i % 4) and on of row i // 4. In ldmatrix.trans the
# elements have 16 bits, and lane i holds elements 2 * (i % 4) and the next of *column* i // 4. stmatrix is
# ldmatrix the other way round.
NVIDIA: tuple[Row, ...] = (
    CopyRow("ld.global", "global", "fragment", (1, 2, 4, 8, 16), Order.SYNC, False, _ALL, "PTX ISA, ld"),
    CopyRow("st.global", "fragment", "global", (1, 2, 4, 8, 16), Order.SYNC, False, _ALL, "PTX ISA, st"),
    CopyRow("ld.shared", "shared", "fragment", (1, 2, 4, 8, 16), Order.SYNC, False, _ALL, "PTX ISA, ld"),
    CopyRow("st.shared", "fragment", "shared", (1, 2, 4, 8, 16), Order.SYNC, False, _ALL, "PTX ISA, st"),
    CopyRow("red.global", "fragment", "global", (4, 8), Order.SYNC, False, _ALL, "PTX ISA, red"),
    CopyRow("ldmatrix", "shared", "fragment", (4, 8, 16), Order.SYNC, True, _ALL, "PTX ISA, ldmatrix",
            alignment=16, dtypes_bits=(8, 16, 32)),
    CopyRow("ldmatrix.trans", "shared", "fragment", (4, 8, 16), Order.SYNC, True, _ALL, "PTX ISA, ldmatrix",
            alignment=16, dtypes_bits=(16,)),
    CopyRow("stmatrix", "fragment", "shared", (4, 8, 16), Order.SYNC, True, _HOPPER, "PTX ISA, stmatrix",
            alignment=16, dtypes_bits=(8, 16, 32)),
    CopyRow("cp.async", "global", "shared", (4, 8, 16), Order.ASYNC_GROUP, False, _ALL, "PTX ISA, cp.async"),
    _mma("mma_m16n8k16", 16, (bfloat16, float16), float32,
         "[16x16 | t 4@1*2 8@0 | v 2@1 2@0*8 2@1*8]", "[8x16 | t 4@1*2 8@0 | v 2@1 2@1*8]",
         _ALL, "PTX ISA, fragments for mma.m16n8k16 with floating point type"),
    _mma("mma_m16n8k8", 8, (tfloat32,), float32,
         "[16x8 | t 4@1 8@0 | v 2@0*8 2@1*4]", "[8x8 | t 4@1 8@0 | v 2@1*4]",
         _ALL, "PTX ISA, fragments for mma.m16n8k8, .tf32"),
    _mma("mma_m16n8k32", 32, (int8,), int32,
         "[16x32 | t 4@1*4 8@0 | v 4@1 2@0*8 2@1*16]", "[8x32 | t 4@1*4 8@0 | v 4@1 2@1*16]",
         _ALL, "PTX ISA, fragments for mma.m16n8k32"),
    _mma("mma_m16n8k32_fp8", 32, (float8_e4m3fn, float8_e5m2), float32,
         "[16x32 | t 4@1*4 8@0 | v 4@1 2@0*8 2@1*16]", "[8x32 | t 4@1*4 8@0 | v 4@1 2@1*16]",
         _HOPPER, "PTX ISA, fragments for mma.m16n8k32 (.e4m3, .e5m2 need sm_89)"),
)  # fmt: skip
