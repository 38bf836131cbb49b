"""A matrix product c = a @ b.T as one writes it first: each program computes one tile, straight from global memory."""

import argus
import argus.language as al


@argus.kernel(num_warps=4)
def product(
    a: al.Tensor[al.bfloat16, "M K"],
    b: al.Tensor[al.bfloat16, "N K"],
    c: al.Tensor[al.bfloat16, "M N"],
    BLOCK_M: al.constexpr = 64,
    BLOCK_N: al.constexpr = 64,
    BLOCK_K: al.constexpr = 32,
):
    M, K = a.shape
    N = b.shape[0]
    al.spec(c, lambda m, n: al.sum(lambda k: a[m, k] * b[n, k]))
    pid_m, pid_n = al.grid(al.cdiv(M, BLOCK_M), al.cdiv(N, BLOCK_N))
    m0, n0 = pid_m * BLOCK_M, pid_n * BLOCK_N
    acc = al.zeros((BLOCK_M, BLOCK_N), al.float32)
    for k0 in range(0, K, BLOCK_K):
        at = al.load(a[m0 : m0 + BLOCK_M, k0 : k0 + BLOCK_K], boundary_check=(0, 1))
        bt = al.load(b[n0 : n0 + BLOCK_N, k0 : k0 + BLOCK_K], boundary_check=(0, 1))
        acc = al.mma(at, bt, acc)
    al.store(c[m0 : m0 + BLOCK_M, n0 : n0 + BLOCK_N], acc.to(al.bfloat16), boundary_check=(0, 1))
