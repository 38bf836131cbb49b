"""Softmax of every row as one writes it first: each program takes one row, and holds all of it."""

import argus
import argus.language as al


@argus.kernel(num_warps=4)
def softmax(
    x: al.Tensor[al.bfloat16, "M N"],
    out: al.Tensor[al.bfloat16, "M N"],
    BLOCK: al.constexpr = 8192,
):
    M, N = x.shape
    al.requires(N <= BLOCK)
    al.spec(out, lambda i, j: al.softmax(lambda k: x[i, k])[j])
    row = al.grid(M)
    cols = al.arange(BLOCK)
    mask = cols < N
    scores = al.load(x[row, cols], mask=mask, other=-float("inf")).to(al.float32)
    top = al.max(scores, axis=0)
    weights = al.exp(scores - top)
    total = al.sum(weights, axis=0)
    al.store(out[row, cols], (weights / total).to(al.bfloat16), mask=mask)
