"""Sums of few long rows as one writes them first: several programs share a row, each a part of a given length."""

import argus
import argus.language as al


@argus.kernel
def row_parts(
    x: al.Tensor[al.float32, "M N"],
    out: al.Tensor[al.float32, "M"],
    BLOCK: al.constexpr = 512,
    PART: al.constexpr = 8192,
):
    M, N = x.shape
    al.spec(out, lambda i: al.sum(lambda j: x[i, j]))
    row, part = al.grid(M, al.cdiv(N, PART))
    first = part * PART
    total = 0.0
    for start in range(first, al.minimum(first + PART, N), BLOCK):
        cols = start + al.arange(BLOCK)
        total += al.sum(al.load(x[row, cols], mask=cols < N), axis=0)
    al.atomic_add(out[row], total)
