"""Softmax of long rows as one writes it first: every program goes through its row three times, piece by piece."""

import argus
import argus.language as al

NEVER = -float("inf")


@argus.kernel(num_warps=4)
def long_softmax(
    x: al.Tensor[al.bfloat16, "M N"],
    out: al.Tensor[al.bfloat16, "M N"],
    BLOCK: al.constexpr = 1024,
):
    M, N = x.shape
    al.spec(out, lambda i, j: al.softmax(lambda k: x[i, k])[j])
    row = al.grid(M)
    top = NEVER
    for start in range(0, N, BLOCK):
        cols = start + al.arange(BLOCK)
        scores = al.load(x[row, cols], mask=cols < N, other=NEVER).to(al.float32)
        top = al.maximum(top, al.max(scores, axis=0))
    total = 0.0
    for start in range(0, N, BLOCK):
        cols = start + al.arange(BLOCK)
        scores = al.load(x[row, cols], mask=cols < N, other=NEVER).to(al.float32)
        total += al.sum(al.exp(scores - top), axis=0)
    for start in range(0, N, BLOCK):
        cols = start + al.arange(BLOCK)
        scores = al.load(x[row, cols], mask=cols < N).to(al.float32)
        al.store(out[row, cols], (al.exp(scores - top) / total).to(al.bfloat16), mask=cols < N)
