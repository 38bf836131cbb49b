"""Matrix product c += a @ b.T in equal shares (stream-K): no block waits for one that has a tile more.

The steps of a row of tiles, each a tile's next BLOCK_K terms, stand in one line, tile after tile; every block takes the
next SHARE of them, wherever in a tile that begins or ends. Blocks that meet in a tile add up atomically, in no fixed
order, so that the last bits of c may differ from run to run. The depth is a constant: the step at which a tile begins
is its number times the steps of a tile, and a proof for every size of both would multiply two unknowns.

For sm_90a choose BLOCK_K=64: then the copy engine brings the tiles, and adds the results (TMA reduce).
"""

import argus
import argus.language as al


@argus.kernel(num_warps=4)
def stream_k_atomic(
    a: al.Tensor[al.bfloat16, "M DEPTH"],
    b: al.Tensor[al.bfloat16, "N DEPTH"],
    c: al.Tensor[al.float32, "M N"],
    DEPTH: al.constexpr = 200,
    SHARE: al.constexpr = 9,
    BLOCK_M: al.constexpr = 64,
    BLOCK_N: al.constexpr = 64,
    BLOCK_K: al.constexpr = 16,
    STAGES: al.constexpr = 3,
):
    M, N = c.shape
    al.spec(c, lambda m, n: al.sum(lambda k: a[m, k] * b[n, k]))
    steps = al.cdiv(DEPTH, BLOCK_K)
    row, worker = al.grid(al.cdiv(M, BLOCK_M), al.cdiv(al.cdiv(N, BLOCK_N) * steps, SHARE))
    m0, first = row * BLOCK_M, worker * SHARE
    last = al.minimum(first + SHARE, al.cdiv(N, BLOCK_N) * steps)
    acc = al.zeros((BLOCK_M, BLOCK_N), al.float32)
    for step in al.pipelined(first, last, stages=STAGES, producer_warps=4):
        n0, k0 = step // steps * BLOCK_N, step % steps * BLOCK_K
        at = al.stage(a[m0 : m0 + BLOCK_M, k0 : k0 + BLOCK_K], boundary_check=(0, 1))
        bt = al.stage(b[n0 : n0 + BLOCK_N, k0 : k0 + BLOCK_K], boundary_check=(0, 1))
        acc = al.mma(at, bt, acc)
        if (step % steps == steps - 1) | (step == last - 1):
            al.atomic_add(c[m0 : m0 + BLOCK_M, n0 : n0 + BLOCK_N], acc, boundary_check=(0, 1))
            acc = al.zeros((BLOCK_M, BLOCK_N), al.float32)
