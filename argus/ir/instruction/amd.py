"""AMD instructions. Document: CDNA3 ISA reference guide, section named in each row.

Lane maps of the matrix instructions: ISA guide section 7.1; AMD's matrix instruction calculator agrees.
"""

from __future__ import annotations

from argus.ir.instruction.row import CopyRow, MmaRow, Order, Row
from argus.ir.types import (
    DType,
    bfloat16,
    float8_e4m3fnuz,
    float8_e5m2fnuz,
    float16,
    float32,
    int8,
    int32,
)
from argus.layout import parse_fragment

_CDNA3 = ("gfx942",)
_BUFFER = "CDNA3 ISA, 9.1 buffer addressing"
_LDS = "CDNA3 ISA, 11.2 LDS"
_ATOMIC = "CDNA3 ISA, 10.4 atomics"
_BYTES = (1, 2, 4, 8, 16)
_ACCUMULATOR = {
    32: "[32x32 | t 32@1 2@0*4 | v 4@0 4@0*8]",
    16: "[16x16 | t 16@1 4@0*4 | v 4@0]",
}


def _mfma(name: str, side: int, k: int, operands: tuple[DType, ...], accumulator: DType) -> MmaRow:
    """A square row: lane l holds `side * k / 64` consecutive k of row `l % side` of both operands."""
    run = side * k // 64
    operand = parse_fragment(f"[{side}x{k} | t {side}@0 {64 // side}@1*{run} | v {run}@1]")
    result = parse_fragment(_ACCUMULATOR[side])
    return MmaRow(
        name, (side, side, k), operands, accumulator, operand, operand, result, 64, _CDNA3,
        "CDNA3 ISA, 7.1 matrix fused-multiply-add instructions",
    )  # fmt: skip


AMD: tuple[Row, ...] = (
    CopyRow("buffer_load", "global", "fragment", _BYTES, Order.SYNC, False, _CDNA3, _BUFFER),
    CopyRow("buffer_store", "fragment", "global", _BYTES, Order.SYNC, False, _CDNA3, _BUFFER),
    CopyRow("ds_read", "shared", "fragment", _BYTES, Order.SYNC, False, _CDNA3, _LDS),
    CopyRow("ds_write", "fragment", "shared", _BYTES, Order.SYNC, False, _CDNA3, _LDS),
    CopyRow("global_atomic", "fragment", "global", (4, 8), Order.SYNC, False, _CDNA3, _ATOMIC),
    _mfma("mfma_f32_32x32x8", 32, 8, (bfloat16, float16), float32),
    _mfma("mfma_f32_16x16x16", 16, 16, (bfloat16, float16), float32),
    _mfma("mfma_f32_32x32x16_fp8", 32, 16, (float8_e4m3fnuz, float8_e5m2fnuz), float32),
    _mfma("mfma_f32_16x16x32_fp8", 16, 32, (float8_e4m3fnuz, float8_e5m2fnuz), float32),
    _mfma("mfma_i32_32x32x16", 32, 16, (int8,), int32),
    _mfma("mfma_i32_16x16x32", 16, 32, (int8,), int32),
)  # fmt: skip
