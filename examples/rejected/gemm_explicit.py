"""Matrix product that does not wait for its asynchronous copies: it reads buffers while they are filled."""

import argus
import argus.language as al


@argus.kernel(num_warps=4)
def gemm_explicit_rejected(
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
    al.tag(a, lambda m, k: (m, k))
    al.tag(b, lambda n, k: (n, k))
    pid_m, pid_n = al.grid(al.cdiv(M, BLOCK_M), al.cdiv(N, BLOCK_N))
    m0, n0 = pid_m * BLOCK_M, pid_n * BLOCK_N
    steps = al.cdiv(K, BLOCK_K)
    tiled = al.tiled_mma("mma_m16n8k16", shape=(BLOCK_M, BLOCK_N, BLOCK_K), warps=(2, 2))
    sa = al.shared((2, BLOCK_M, BLOCK_K), al.bfloat16, layout=al.swizzle(2, 3, 3))
    sb = al.shared((2, BLOCK_N, BLOCK_K), al.bfloat16, layout=al.swizzle(2, 3, 3))
    acc = al.zeros((BLOCK_M, BLOCK_N), al.float32, layout=tiled.c)
    fill(sa[0, :, :], sb[0, :, :], a, b, m0, n0, 0)
    for step in range(steps):
        al.barrier()
        if step + 1 < steps:
            fill(sa[(step + 1) % 2, :, :], sb[(step + 1) % 2, :, :], a, b, m0, n0, (step + 1) * BLOCK_K)
        at = al.load(sa[step % 2, :, :], layout=tiled.a, instruction="ldmatrix")
        bt = al.load(sb[step % 2, :, :], layout=tiled.b, instruction="ldmatrix")
        al.assert_tags(lambda i, j, k: at[i, k].k == bt[j, k].k)
        acc = al.mma(at, bt, acc, instruction="mma_m16n8k16", warps=(2, 2))
    al.assert_tags(
        lambda i, j: acc[i, j] == (m0 + i, n0 + j, al.once(0, K)),
        where=lambda i, j: (m0 + i < M) & (n0 + j < N),
    )
    al.store(c[m0 : m0 + BLOCK_M, n0 : n0 + BLOCK_N], acc.to(al.bfloat16), boundary_check=(0, 1))


@argus.func
def fill(sa, sb, a, b, m0, n0, k0):
    """Starts the asynchronous copies of one K tile of both operands."""
    rows, depth = sa.shape
    columns = sb.shape[0]
    al.copy(sa, a[m0 : m0 + rows, k0 : k0 + depth], boundary_check=(0, 1), other=0.0, instruction="cp.async")
    al.copy(sb, b[n0 : n0 + columns, k0 : k0 + depth], boundary_check=(0, 1), other=0.0, instruction="cp.async")
    al.cp_async_commit()
