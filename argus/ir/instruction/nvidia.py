"""NVIDIA instructions. Documents: PTX ISA 9.0, section named in each row."""

from __future__ import annotations

from argus.ir.instruction.row import CopyRow, Order, Row

_ALL = ("sm_80",)

NVIDIA: tuple[Row, ...] = (
    CopyRow("ld.global", "global", "fragment", (1, 2, 4, 8, 16), Order.SYNC, False, _ALL, "PTX ISA, ld"),
    CopyRow("st.global", "fragment", "global", (1, 2, 4, 8, 16), Order.SYNC, False, _ALL, "PTX ISA, st"),
    CopyRow("ld.shared", "shared", "fragment", (1, 2, 4, 8, 16), Order.SYNC, False, _ALL, "PTX ISA, ld"),
    CopyRow("st.shared", "fragment", "shared", (1, 2, 4, 8, 16), Order.SYNC, False, _ALL, "PTX ISA, st"),
    CopyRow("red.global", "fragment", "global", (4, 8), Order.SYNC, False, _ALL, "PTX ISA, red"),
    CopyRow("ldmatrix", "shared", "fragment", (16,), Order.SYNC, True, _ALL, "PTX ISA, ldmatrix",
            alignment=16, dtypes_bits=(16,)),
    CopyRow("stmatrix", "fragment", "shared", (16,), Order.SYNC, True, ("sm_90a",), "PTX ISA, stmatrix",
            alignment=16, dtypes_bits=(16,)),
    CopyRow("cp.async", "global", "shared", (4, 8, 16), Order.ASYNC_GROUP, False, _ALL, "PTX ISA, cp.async"),
)  # fmt: skip
