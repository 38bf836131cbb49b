"""Add up columns in shares. Each block of a row kernel leaves a share, a row of partial sums of the rows that it has. A
second launch adds the shares up. The order depends on shapes alone, so results are the same in each run."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import argus
import argus.language as al
from argus.ir.machine import H200
from argus.kernels.rows import SMALL, dtype_of, spread
from argus.runtime.work import Call

if TYPE_CHECKING:
    import torch

_WARPS = 32  # of each multiprocessor that go through rows at once
_COLUMN_BLOCK, _COLUMN_ROWS = 256, 8  # of a tile of columns that is added up with the rows' factors known
_SHARES = 64  # of each of its columns


@argus.kernel(num_warps=8)
def add_shares(
    shares: al.Tensor[al.float32, "Z S N"],
    out: al.Tensor[OUT, "Z N"],
    OUT: al.constexpr = al.bfloat16,
    ROWS: al.constexpr = 64,
    BLOCK: al.constexpr = 16,
):
    """Compute `out[z, n] = sum(shares[z, :, n])`."""
    Z, S, N = shares.shape
    al.requires(S <= 2**30)
    al.spec(out, lambda z, n: al.sum(lambda s: shares[z, s, n]))
    column, z = al.grid(al.cdiv(N, BLOCK), Z)
    cols = column * BLOCK + al.arange(BLOCK)
    total = al.zeros((ROWS, BLOCK), al.float32)
    for first in range(0, S, ROWS):
        rows = first + al.arange(ROWS)[:, None]
        total += al.load(shares[z, rows, cols], mask=(rows < S) & (cols < N))
    al.store(out[z, cols], al.sum(total, axis=0).to(OUT), mask=cols < N)


def added(shares: torch.Tensor, out: torch.Tensor) -> Call:
    """Return the launch that writes the sum of `shares` `[Z, S, N]` over S to `out` `[Z, N]`."""
    return Call(add_shares, (shares, out), {"OUT": dtype_of("out", out)})


@lru_cache(maxsize=4096)
def by_rows(rows: int, columns: int, itemsize: int, width: int) -> dict[str, int]:
    """Return the constants of a kernel whose BLOCKS blocks process `rows` rows in vectors of `width` elements. BLOCKS
    is the number of blocks that run at once or, for few rows, one for each group of rows that a block processes at a
    time."""
    shape = spread(columns, itemsize, SMALL, width=width)
    most = max(1, _WARPS // shape.warps) * H200.multiprocessors
    groups = -(-rows // shape.rows)
    blocks = min(most, 1 << max(0, groups - 1).bit_length())
    return {**shape.constants, "BLOCKS": blocks}


@lru_cache(maxsize=4096)
def by_columns(rows: int) -> dict[str, int]:
    """Return the constants of a kernel that adds up the columns of `rows` rows in BLOCKS shares."""
    groups = -(-rows // _COLUMN_ROWS)
    blocks = min(_SHARES, 1 << max(0, groups - 1).bit_length())
    return {"ROWS": _COLUMN_ROWS, "BLOCK": _COLUMN_BLOCK, "BLOCKS": blocks}
