"""Product of two groups that take turns, which always takes the first K tile of a: elements of different k meet."""

import argus
import argus.language as al


@argus.kernel(num_warps=4)
def gemm_pingpong_rejected(
    a: al.Tensor[al.bfloat16, "M K"],
    b: al.Tensor[al.bfloat16, "N K"],
    c: al.Tensor[al.bfloat16, "M N"],
    BLOCK_M: al.constexpr = 128,
    BLOCK_N: al.constexpr = 128,
    BLOCK_K: al.constexpr = 64,
    STAGES: al.constexpr = 4,
    CLUSTER: al.constexpr = 1,
):
    M, K = a.shape
    N = b.shape[0]
    al.spec(c, lambda m, n: al.sum(lambda k: a[m, k] * b[n, k]))
    al.tag(a, lambda m, k: (m, k))
    al.tag(b, lambda n, k: (n, k))
    pid_m, pid_n = al.grid(
        al.cdiv(M, BLOCK_M), al.cdiv(N, BLOCK_N), group=8, cluster=CLUSTER, persistent=True, schedule="pingpong"
    )
    m0, n0 = pid_m * BLOCK_M, pid_n * BLOCK_N
    acc = al.zeros((BLOCK_M, BLOCK_N), al.float32)
    for k0 in al.pipelined(0, K, BLOCK_K, stages=STAGES, producer_warps=4):
        at = al.stage(a[m0 : m0 + BLOCK_M, 0:BLOCK_K], boundary_check=(0, 1))
        bt = al.stage(b[n0 : n0 + BLOCK_N, k0 : k0 + BLOCK_K], boundary_check=(0, 1))
        al.assert_tags(lambda i, j, k: at[i, k].k == bt[j, k].k)
        acc = al.mma(at, bt, acc)
    al.assert_tags(
        lambda i, j: acc[i, j] == (m0 + i, n0 + j, al.once(0, K)),
        where=lambda i, j: (m0 + i < M) & (n0 + j < N),
    )
    al.store(c[m0 : m0 + BLOCK_M, n0 : n0 + BLOCK_N], acc.to(al.bfloat16), boundary_check=(0, 1))
