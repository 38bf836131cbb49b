"""Attention as one writes it first: each program takes some rows of one head, and all keys block by block."""

import argus
import argus.language as al

NEVER = -float("inf")
LN2 = 0.6931471805599453


@argus.kernel(num_warps=4)
def attention(
    q: al.Tensor[al.bfloat16, "B H M 128"],
    k: al.Tensor[al.bfloat16, "B H N 128"],
    v: al.Tensor[al.bfloat16, "B H N 128"],
    o: al.Tensor[al.bfloat16, "B H M 128"],
    scale: al.float32,
    BLOCK_M: al.constexpr = 64,
    BLOCK_N: al.constexpr = 32,
):
    """`o = softmax(q @ k.T * scale) @ v` for every head; `scale` times log2(e), since exponents have base 2."""
    B, H, M = q.shape[0], q.shape[1], q.shape[2]
    N = k.shape[2]
    al.requires(scale > 0.0)
    al.requires(N > 0)
    al.spec(
        o,
        lambda b, h, i, e: al.sum(
            lambda n: (
                al.softmax(lambda j: al.sum(lambda d: q[b, h, i, d] * k[b, h, j, d]) * (scale * LN2))[n] * v[b, h, n, e]
            )
        ),
    )
    place, head, batch = al.grid(al.cdiv(M, BLOCK_M), H, B)
    m0 = place * BLOCK_M
    keys = al.arange(BLOCK_N)
    qt = al.load(q[batch, head, m0 : m0 + BLOCK_M, :], boundary_check=(0,))
    top = al.full((BLOCK_M,), NEVER, al.float32)
    total = al.zeros((BLOCK_M,), al.float32)
    acc = al.zeros((BLOCK_M, 128), al.float32)
    for n0 in range(0, N, BLOCK_N):
        kt = al.load(k[batch, head, n0 : n0 + BLOCK_N, :], boundary_check=(0,))
        vt = al.load(v[batch, head, n0 : n0 + BLOCK_N, :], boundary_check=(0,))
        s = al.mma(qt, kt, al.zeros((BLOCK_M, BLOCK_N), al.float32))
        s = al.where((n0 + keys)[None, :] < N, s, NEVER)
        new = al.maximum(top, al.max(s, axis=1))
        shrink = al.exp2((top - new) * scale)
        w = al.exp2((s - new[:, None]) * scale)
        total = total * shrink + al.sum(w, axis=1)
        top = new
        p = w.to(al.bfloat16)
        acc = acc * shrink[:, None]
        acc = al.mma(p, al.trans(vt), acc)
    y = acc * (1.0 / total)[:, None]
    al.store(o[batch, head, m0 : m0 + BLOCK_M, :], y.to(al.bfloat16), boundary_check=(0,))
