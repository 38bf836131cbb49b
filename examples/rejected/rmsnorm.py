"""RMSNorm that takes the weights one column too far: an element meets its neighbour's weight."""

import argus
import argus.language as al


@argus.kernel
def rmsnorm_rejected(
    x: al.Tensor[al.bfloat16, "M N"],
    weight: al.Tensor[al.bfloat16, "N"],
    out: al.Tensor[al.bfloat16, "M N"],
    eps: al.float32,
    BLOCK: al.constexpr = 1024,
):
    M, N = x.shape
    al.requires(N <= BLOCK)
    al.spec(
        out,
        lambda i, j: x[i, j] * al.rsqrt(al.sum(lambda k: x[i, k] * x[i, k]) / N.to(al.float32) + eps) * weight[j],
    )
    al.tag(x, lambda m, n: (m, n))
    al.tag(weight, lambda n: (n,))
    row = al.grid(M)
    cols = al.arange(BLOCK)
    mask = cols < N
    values = al.load(x[row, cols], mask=mask).to(al.float32)
    scale = al.load(weight[cols + 1], mask=cols + 1 < N).to(al.float32)
    al.assert_tags(lambda j: values[j].n == scale[j].n)
    squares = al.sum(values * values, axis=0)
    inverse = al.rsqrt(squares / N.to(al.float32) + eps)
    al.store(out[row, cols], (values * inverse * scale).to(al.bfloat16), mask=mask)
