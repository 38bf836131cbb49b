"""Limits of the copy engine, mbarriers and warpgroups of sm_90a: sizes of boxes, rows and registers."""

from __future__ import annotations

from argus.ir.machine import H200

ROW_BYTES = 128
"""Bytes of a row of a tile that bulk copies fill and asynchronous products read: the width of the swizzle."""
NARROW_ROWS = (64, 32, 16)
"""Bytes of other rows that bulk copies store, in the swizzles of 64 and 32 bytes, and in none."""
SWIZZLE_ATOM = 1024
"""Bytes after which the 128-byte swizzle repeats: 8 rows. Tiles begin at multiples of it."""
MAX_BOX = 256
"""Largest extent of a bulk copy's box (CUDA driver API, cuTensorMapEncodeTiled)."""
MIN_BUDGET, MAX_BUDGET, BUDGET_UNIT = 24, 256, 8
"""Registers a thread of a role may ask for (PTX ISA, setmaxnreg)."""
MAX_COUNT = (1 << 20) - 1
"""Most arrivals, and most bytes, of one phase (PTX ISA, mbarrier)."""
MAX_CLUSTER = 8
"""Blocks of a cluster that every device takes (CUDA C++ guide, thread block clusters)."""


def registers_at_first(threads: int) -> int:
    """Registers that each thread of a block of roles begins with: an even share of the multiprocessor's.

    Roles that ask for more wait until others have given that many back (PTX ISA, setmaxnreg): what a block did not
    begin with never comes.
    """
    return min(MAX_BUDGET, H200.registers // threads // BUDGET_UNIT * BUDGET_UNIT)
