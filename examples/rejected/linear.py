"""A linear layer that adds the bias of the wrong columns: those that have the numbers of its rows."""

import argus
import argus.language as al


@argus.kernel(num_warps=4)
def linear_rejected(
    x: al.Tensor[al.bfloat16, "M K"],
    weight: al.Tensor[al.bfloat16, "N K"],
    bias: al.Tensor[al.float32, "N"],
    out: al.Tensor[al.bfloat16, "M N"],
    BLOCK_M: al.constexpr = 64,
    BLOCK_N: al.constexpr = 128,
    BLOCK_K: al.constexpr = 64,
    STAGES: al.constexpr = 2,
):
    M, K = x.shape
    N = weight.shape[0]
    al.spec(out, lambda m, n: al.maximum(al.sum(lambda k: x[m, k] * weight[n, k]) + bias[n], 0.0))
    pid_m, pid_n = al.grid(al.cdiv(M, BLOCK_M), al.cdiv(N, BLOCK_N))
    m0, n0 = pid_m * BLOCK_M, pid_n * BLOCK_N
    acc = al.zeros((BLOCK_M, BLOCK_N), al.float32)
    for k0 in al.pipelined(0, K, BLOCK_K, stages=STAGES, producer_warps=4):
        xt = al.stage(x[m0 : m0 + BLOCK_M, k0 : k0 + BLOCK_K], boundary_check=(0, 1))
        wt = al.stage(weight[n0 : n0 + BLOCK_N, k0 : k0 + BLOCK_K], boundary_check=(0, 1))
        acc = al.mma(xt, wt, acc)
    added = al.load(bias[m0 : m0 + BLOCK_N], boundary_check=(0,))
    total = al.maximum(acc + added[None, :], 0.0)
    al.store(out[m0 : m0 + BLOCK_M, n0 : n0 + BLOCK_N], total.to(al.bfloat16), boundary_check=(0, 1))
