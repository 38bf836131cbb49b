"""Softmax of rows that are too long for the registers of one block: the blocks of a cluster share each row."""

import argus
import argus.language as al


@argus.func
def of_all_blocks(parts, found):
    """Combine the values of all blocks of the cluster: each writes its value into every other block's shared tile."""
    for rank in al.static_range(parts.shape[0]):
        al.store(al.peer(parts[al.cluster_rank()], rank), found)
    al.barrier(scope="cluster")
    return al.load(parts)


@argus.kernel(num_warps=4)
def cluster_softmax(
    x: al.Tensor[al.float32, "M N"],
    out: al.Tensor[al.float32, "M N"],
    PART: al.constexpr = 4096,
    CLUSTER: al.constexpr = 2,
):
    M, N = x.shape
    al.requires((N <= PART * CLUSTER) & (M < 2**28))
    al.spec(
        out,
        lambda i, j: al.exp(x[i, j] - al.max(lambda k: x[i, k]))
        / al.sum(lambda n: al.exp(x[i, n] - al.max(lambda k: x[i, k]))),
    )
    row = al.grid(M * CLUSTER, cluster=CLUSTER) // CLUSTER
    cols = al.cluster_rank() * PART + al.arange(PART)
    mask = cols < N
    highest = al.shared((CLUSTER,), al.float32)
    sums = al.shared((CLUSTER,), al.float32)
    scores = al.load(x[row, cols], mask=mask, other=-float("inf"))
    al.barrier(scope="cluster")
    top = al.max(of_all_blocks(highest, al.max(scores, axis=0)), axis=0)
    weights = al.exp(scores - top)
    total = al.sum(of_all_blocks(sums, al.sum(weights, axis=0)), axis=0)
    al.store(out[row, cols], weights / total, mask=mask)
