"""Exchanges the halves of every row: each block of a cluster of two takes what the other one holds."""

import argus
import argus.language as al


@argus.kernel(num_warps=4)
def exchange(x: al.Tensor[al.float32, "M N"], out: al.Tensor[al.float32, "M N"], PART: al.constexpr = 512):
    M, N = x.shape
    al.requires((N == 2 * PART) & (M < 2**28))
    al.spec(out, lambda i, j: x[i, (j + PART) % (2 * PART)])
    row = al.grid(2 * M, cluster=2) // 2
    rank = al.cluster_rank()
    held = al.shared((PART,), al.float32)
    al.store(held, al.load(x[row, rank * PART + al.arange(PART)]))
    al.barrier(scope="cluster")
    theirs = al.load(al.peer(held, 1 - rank))
    al.barrier(scope="cluster")
    al.store(out[row, rank * PART + al.arange(PART)], theirs)
