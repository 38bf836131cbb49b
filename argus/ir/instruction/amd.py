"""AMD instructions. Document: CDNA3 ISA reference guide, section named in each row."""

from __future__ import annotations

from argus.ir.instruction.row import CopyRow, Order, Row

_CDNA3 = ("gfx942",)

AMD: tuple[Row, ...] = (
    CopyRow("buffer_load", "global", "fragment", (1, 2, 4, 8, 16), Order.SYNC, False, _CDNA3,
            "CDNA3 ISA, 9.1 buffer addressing"),
    CopyRow("buffer_store", "fragment", "global", (1, 2, 4, 8, 16), Order.SYNC, False, _CDNA3,
            "CDNA3 ISA, 9.1 buffer addressing"),
    CopyRow("ds_read", "shared", "fragment", (1, 2, 4, 8, 16), Order.SYNC, False, _CDNA3, "CDNA3 ISA, 11.2 LDS"),
    CopyRow("ds_write", "fragment", "shared", (1, 2, 4, 8, 16), Order.SYNC, False, _CDNA3, "CDNA3 ISA, 11.2 LDS"),
    CopyRow("global_atomic", "fragment", "global", (4, 8), Order.SYNC, False, _CDNA3, "CDNA3 ISA, 10.4 atomics"),
)  # fmt: skip
