"""A gated activation as one writes it first: programs follow the columns, each with a small piece of one row."""

import argus
import argus.language as al


@argus.kernel(num_warps=4)
def gated(
    gate: al.Tensor[al.bfloat16, "M N"],
    up: al.Tensor[al.bfloat16, "M N"],
    out: al.Tensor[al.bfloat16, "M N"],
    BLOCK: al.constexpr = 256,
):
    M, N = gate.shape
    al.spec(out, lambda i, j: gate[i, j] / (1.0 + al.exp(-gate[i, j])) * up[i, j])
    row, part = al.grid(M, al.cdiv(N, BLOCK))
    cols = part * BLOCK + al.arange(BLOCK)
    mask = cols < N
    g = al.load(gate[row, cols], mask=mask).to(al.float32)
    u = al.load(up[row, cols], mask=mask).to(al.float32)
    below = 1.0 + al.exp(-g)
    al.store(out[row, cols], (g / below * u).to(al.bfloat16), mask=mask)
