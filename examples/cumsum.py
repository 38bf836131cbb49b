"""Cumulative sums of rows: a block goes along its rows, and adds up every tile below a triangle."""

import argus
import argus.language as al


@argus.kernel
def cumsum(
    x: al.Tensor[al.float32, "M N"],
    out: al.Tensor[al.float32, "M N"],
    ROWS: al.constexpr = 8,
    COLUMNS: al.constexpr = 32,
):
    M, N = x.shape
    al.spec(out, lambda i, j: al.sum(lambda k: al.where(k <= j, x[i, k], 0.0)))
    i0 = al.grid(al.cdiv(M, ROWS)) * ROWS
    j = al.arange(COLUMNS)
    before = j[None, :] <= j[:, None]
    total = al.zeros((ROWS,), al.float32)
    for j0 in range(0, N, COLUMNS):
        tile = al.load(x[i0 : i0 + ROWS, j0 : j0 + COLUMNS], boundary_check=(0, 1))
        part = al.sum(al.where(before[None, :, :], tile[:, None, :], 0.0), axis=2)
        al.store(out[i0 : i0 + ROWS, j0 : j0 + COLUMNS], total[:, None] + part, boundary_check=(0, 1))
        total += al.sum(tile, axis=1)
