"""Parts of a product, c += a @ b.T, whose blocks add up by the copy engine (TMA) on sm_90a."""

from __future__ import annotations

import argus
import argus.language as al


@argus.kernel(num_warps=4)
def reduced(
    a: al.Tensor[al.bfloat16, "M K"],
    b: al.Tensor[al.bfloat16, "N K"],
    c: al.Tensor[OUT, "M N"],
    BLOCK_M: al.constexpr = 64,
    BLOCK_N: al.constexpr = 64,
    BLOCK_K: al.constexpr = 64,
    DEPTH: al.constexpr = 256,
    STAGES: al.constexpr = 3,
    OUT: al.constexpr = al.float32,
    PERSISTENT: al.constexpr = False,
    SPECIFIED: al.constexpr = True,
):
    M, K = a.shape
    N = b.shape[0]
    if SPECIFIED:
        al.spec(c, lambda m, n: al.sum(lambda k: a[m, k] * b[n, k]))
    row, column, part = al.grid(al.cdiv(M, BLOCK_M), al.cdiv(N, BLOCK_N), al.cdiv(K, DEPTH), persistent=PERSISTENT)
    m0, n0, first = row * BLOCK_M, column * BLOCK_N, part * DEPTH
    last = al.minimum(first + DEPTH, K)
    acc = al.zeros((BLOCK_M, BLOCK_N), al.float32)
    for done in al.pipelined(0, last - first, BLOCK_K, stages=STAGES, producer_warps=4):
        k0 = first + done
        at = al.stage(a[m0 : m0 + BLOCK_M, k0 : k0 + BLOCK_K], boundary_check=(0, 1))
        bt = al.stage(b[n0 : n0 + BLOCK_N, k0 : k0 + BLOCK_K], boundary_check=(0, 1))
        acc = al.mma(at, bt, acc)
    al.atomic_add(c[m0 : m0 + BLOCK_M, n0 : n0 + BLOCK_N], acc.to(OUT), boundary_check=(0, 1))
