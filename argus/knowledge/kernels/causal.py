"""Causal attention as one writes it first: programs go through all keys, and mask those that a row must not see."""

import argus
import argus.language as al

NEVER = -float("inf")
LN2 = 0.6931471805599453


@argus.kernel(num_warps=4)
def causal(
    q: al.Tensor[al.bfloat16, "H M 64"],
    k: al.Tensor[al.bfloat16, "H M 64"],
    v: al.Tensor[al.bfloat16, "H M 64"],
    o: al.Tensor[al.bfloat16, "H M 64"],
    scale: al.float32,
    BLOCK_M: al.constexpr = 64,
    BLOCK_N: al.constexpr = 32,
):
    """Row i of each head sees the keys 0 to i; `scale` times log2(e), since exponents have base 2."""
    H, M = q.shape[0], q.shape[1]
    al.requires(scale > 0.0)
    al.spec(
        o,
        lambda h, i, e: al.sum(
            lambda n: (
                al.softmax(
                    lambda j: al.where(j <= i, al.sum(lambda d: q[h, i, d] * k[h, j, d]) * (scale * LN2), NEVER)
                )[n]
                * v[h, n, e]
            )
        ),
    )
    place, head = al.grid(al.cdiv(M, BLOCK_M), H)
    m0 = place * BLOCK_M
    rows, keys = m0 + al.arange(BLOCK_M), al.arange(BLOCK_N)
    qt = al.load(q[head, m0 : m0 + BLOCK_M, :], boundary_check=(0,))
    top = al.full((BLOCK_M,), NEVER, al.float32)
    total = al.zeros((BLOCK_M,), al.float32)
    acc = al.zeros((BLOCK_M, 64), al.float32)
    for n0 in range(0, M, BLOCK_N):
        kt = al.load(k[head, n0 : n0 + BLOCK_N, :], boundary_check=(0,))
        vt = al.load(v[head, n0 : n0 + BLOCK_N, :], boundary_check=(0,))
        s = al.mma(qt, kt, al.zeros((BLOCK_M, BLOCK_N), al.float32))
        s = al.where((n0 + keys)[None, :] < (rows + 1)[:, None], s, NEVER)
        new = al.maximum(top, al.max(s, axis=1))
        shrink = al.exp2((top - new) * scale)
        w = al.exp2((s - new[:, None]) * scale)
        total = total * shrink + al.sum(w, axis=1)
        top = new
        p = w.to(al.bfloat16)
        acc = acc * shrink[:, None]
        acc = al.mma(p, al.trans(vt), acc)
    y = acc * (1.0 / total)[:, None]
    al.store(o[head, m0 : m0 + BLOCK_M, :], y.to(al.bfloat16), boundary_check=(0,))
