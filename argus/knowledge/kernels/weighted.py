"""Two products of one tile, with and without weights of k, as one writes them first."""

import argus
import argus.language as al


@argus.kernel(num_warps=4)
def weighted(
    a: al.Tensor[al.bfloat16, "M K"],
    b: al.Tensor[al.bfloat16, "N K"],
    w: al.Tensor[al.float32, "K"],
    y: al.Tensor[al.bfloat16, "M N"],
    z: al.Tensor[al.bfloat16, "M N"],
    BLOCK_M: al.constexpr = 64,
    BLOCK_N: al.constexpr = 64,
    BLOCK_K: al.constexpr = 64,
    STAGES: al.constexpr = 3,
):
    M, K = a.shape
    N = b.shape[0]
    al.spec(y, lambda m, n: al.sum(lambda k: a[m, k] * b[n, k]))
    al.spec(z, lambda m, n: al.sum(lambda k: a[m, k] * w[k] * b[n, k]))
    pid_m, pid_n = al.grid(al.cdiv(M, BLOCK_M), al.cdiv(N, BLOCK_N))
    m0, n0 = pid_m * BLOCK_M, pid_n * BLOCK_N
    plain = al.zeros((BLOCK_M, BLOCK_N), al.float32)
    scaled = al.zeros((BLOCK_M, BLOCK_N), al.float32)
    for k0 in al.pipelined(0, K, BLOCK_K, stages=STAGES):
        bt = al.stage(b[n0 : n0 + BLOCK_N, k0 : k0 + BLOCK_K], boundary_check=(0, 1))
        at = al.stage(a[m0 : m0 + BLOCK_M, k0 : k0 + BLOCK_K], boundary_check=(0, 1))
        weights = al.load(w[k0 : k0 + BLOCK_K], boundary_check=(0,))
        plain = al.mma(at, bt, plain)
        heavier = (al.load(at).to(al.float32) * weights[None, :]).to(al.bfloat16)
        scaled = al.mma(heavier, bt, scaled)
    al.store(y[m0 : m0 + BLOCK_M, n0 : n0 + BLOCK_N], plain.to(al.bfloat16), boundary_check=(0, 1))
    al.store(z[m0 : m0 + BLOCK_M, n0 : n0 + BLOCK_N], scaled.to(al.bfloat16), boundary_check=(0, 1))
