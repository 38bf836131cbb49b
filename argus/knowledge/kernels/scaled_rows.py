"""Rows times a number each, as one writes it first: the number is loaded again for every piece of the row."""

import argus
import argus.language as al


@argus.kernel(num_warps=4)
def scaled_rows(
    x: al.Tensor[al.bfloat16, "M N"],
    scale: al.Tensor[al.float32, "M"],
    out: al.Tensor[al.bfloat16, "M N"],
    BLOCK: al.constexpr = 256,
):
    M, N = x.shape
    al.spec(out, lambda i, j: x[i, j] * scale[i])
    row = al.grid(M)
    for start in range(0, N, BLOCK):
        cols = start + al.arange(BLOCK)
        factor = al.load(scale[row])
        values = al.load(x[row, cols], mask=cols < N).to(al.float32)
        al.store(out[row, cols], (values * factor).to(al.bfloat16), mask=cols < N)
