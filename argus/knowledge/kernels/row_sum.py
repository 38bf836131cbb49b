"""Sums of rows as one writes them first: each program reads one row piece by piece, and adds up every piece."""

import argus
import argus.language as al


@argus.kernel
def row_sum(
    x: al.Tensor[al.float32, "M N"],
    out: al.Tensor[al.float32, "M"],
    BLOCK: al.constexpr = 512,
):
    M, N = x.shape
    al.spec(out, lambda i: al.sum(lambda j: x[i, j]))
    row = al.grid(M)
    total = 0.0
    for start in range(0, N, BLOCK):
        cols = start + al.arange(BLOCK)
        values = al.load(x[row, cols], mask=cols < N)
        total += al.sum(values, axis=0)
    al.store(out[row], total)
