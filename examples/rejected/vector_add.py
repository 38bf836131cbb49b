"""Vector addition whose store forgets the mask: the last block writes past the end of `out`."""

import argus
import argus.language as al


@argus.kernel
def vector_add_rejected(
    x: al.Tensor[al.float32, "N"],
    y: al.Tensor[al.float32, "N"],
    out: al.Tensor[al.float32, "N"],
    BLOCK: al.constexpr = 1024,
):
    N = x.shape[0]
    al.spec(out, lambda i: x[i] + y[i])
    pid = al.grid(al.cdiv(N, BLOCK))
    offs = pid * BLOCK + al.arange(BLOCK)
    mask = offs < N
    total = al.load(x[offs], mask=mask) + al.load(y[offs], mask=mask)
    al.store(out[offs], total)
