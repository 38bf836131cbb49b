"""Softmax whose padding is 0 instead of minus infinity: it takes part in the maximum and in the sum."""

import argus
import argus.language as al


@argus.kernel
def softmax_rejected(
    x: al.Tensor[al.float32, "M N"],
    out: al.Tensor[al.float32, "M N"],
    BLOCK: al.constexpr = 1024,
):
    M, N = x.shape
    al.requires(N <= BLOCK)
    al.spec(
        out,
        lambda i, j: al.exp(x[i, j] - al.max(lambda k: x[i, k]))
        / al.sum(lambda n: al.exp(x[i, n] - al.max(lambda k: x[i, k]))),
    )
    row = al.grid(M)
    cols = al.arange(BLOCK)
    mask = cols < N
    scores = al.load(x[row, cols], mask=mask, other=0.0)
    weights = al.exp(scores - al.max(scores, axis=0))
    total = al.sum(weights, axis=0)
    al.store(out[row, cols], weights / total, mask=mask)
