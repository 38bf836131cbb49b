"""RMSNorm as one writes it first: each program takes one row, and holds all of it."""

import argus
import argus.language as al


@argus.kernel(num_warps=4)
def rmsnorm(
    x: al.Tensor[al.bfloat16, "M N"],
    weight: al.Tensor[al.bfloat16, "N"],
    out: al.Tensor[al.bfloat16, "M N"],
    eps: al.float32,
    BLOCK: al.constexpr = 8192,
):
    M, N = x.shape
    al.requires(N <= BLOCK)
    al.spec(
        out,
        lambda i, j: x[i, j] * al.rsqrt(al.sum(lambda k: x[i, k] * x[i, k]) / N.to(al.float32) + eps) * weight[j],
    )
    row = al.grid(M)
    cols = al.arange(BLOCK)
    mask = cols < N
    values = al.load(x[row, cols], mask=mask).to(al.float32)
    scale = al.load(weight[cols], mask=mask).to(al.float32)
    squares = al.sum(values * values, axis=0)
    inverse = al.rsqrt(squares / N.to(al.float32) + eps)
    al.store(out[row, cols], (values * inverse * scale).to(al.bfloat16), mask=mask)
