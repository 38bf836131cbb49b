"""Limits of the copy engine, mbarriers and warpgroups of sm_90a: sizes of boxes, rows and registers."""

from __future__ import annotations

from argus.ir.machine import H200

ROW_BYTES = 128
"""Bytes in a row of a tile that bulk copies fill and asynchronous products read. This is the width of the 128-byte
swizzle."""
NARROW_ROW = 64
"""Bytes in a row of a tile that is no wider: the width of the 64-byte swizzle. Products read it along the depth."""
NARROW_ROWS = (64, 32, 16)
"""Bytes in the other rows that bulk copies store: rows with the swizzles of 64 and 32 bytes, and rows without a
swizzle."""
SWIZZLE_ATOM = 1024
"""Number of bytes after which the 128-byte swizzle repeats: 8 rows. Tiles begin at multiples of this number."""
MAX_BOX = 256
"""Largest extent of a bulk copy's box (CUDA driver API, cuTensorMapEncodeTiled)."""
MIN_BUDGET, MAX_BUDGET, BUDGET_UNIT = 24, 256, 8
"""Smallest and largest number of registers that a thread of a role may request, and the unit (PTX ISA, setmaxnreg)."""
MAX_COUNT = (1 << 20) - 1
"""Largest number of arrivals, and of bytes, in one phase (PTX ISA, mbarrier)."""
MAX_CLUSTER = 8
"""Largest number of blocks in a cluster that every device supports (CUDA C++ guide, thread block clusters)."""


def row_bytes(columns: int, bytes: int) -> int:
    """Return the bytes in a row of a panel of a tile with so many columns of `bytes` each."""
    return NARROW_ROW if columns * bytes == NARROW_ROW else ROW_BYTES


def registers_at_first(threads: int) -> int:
    """Return the number of registers with which each thread of a block of roles begins: an even share of the
    multiprocessor's registers.

    Roles that request more wait until other roles have released as many (PTX ISA, setmaxnreg). The block never gets
    more registers than it began with.
    """
    return min(MAX_BUDGET, H200.registers // threads // BUDGET_UNIT * BUDGET_UNIT)
