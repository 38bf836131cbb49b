"""The up product of a mixture of experts as one writes it first: rows that are gathered, weights of their expert."""

import argus
import argus.language as al


@argus.kernel(num_warps=4)
def experts(
    x: al.Tensor[al.bfloat16, "T K"],
    token: al.Tensor[al.int32, "P"],
    first: al.Tensor[al.int32, "L1"],
    owner: al.Tensor[al.int32, "L1"],
    w: al.Tensor[al.bfloat16, "E N K"],
    out: al.Tensor[al.bfloat16, "P C"],
    ROWS: al.constexpr = 128,
    COLUMNS: al.constexpr = 64,
    DEPTH: al.constexpr = 32,
):
    """`out[p, n] = silu(g) * u`, with g and u the products of row p with columns n and C + n of its expert."""
    T, K, E, N, P, C = x.shape[0], x.shape[1], w.shape[0], w.shape[1], out.shape[0], out.shape[1]
    al.requires((first.shape[0] > 1) & (0 < T) & (T < 2**30) & (P < 2**30) & (0 < E) & (0 < K))
    al.requires(N == 2 * C)
    al.requires(al.in_range(owner, 0, E))
    al.requires(al.offsets(first, P, longest=ROWS))
    al.requires(al.in_range(token, 0, T))
    al.covers(out, at=lambda i, p, n: (p, n), where=lambda i, p, n: (first[i] <= p) & (p < first[i + 1]))
    al.spec(
        out,
        lambda i, p, n: (
            al.sum(lambda k: x[token[p], k] * w[owner[i], n, k])
            * al.sigmoid(al.sum(lambda k: x[token[p], k] * w[owner[i], n, k]))
            * al.sum(lambda k: x[token[p], k] * w[owner[i], C + n, k])
        ),
    )
    column, i = al.grid(al.cdiv(C, COLUMNS), first.shape[0] - 1)
    m0, end, e, n0 = al.load(first[i]), al.load(first[i + 1]), al.load(owner[i]), column * COLUMNS
    p = m0 + al.arange(ROWS)
    rows = al.load(token[p], mask=p < end)
    gate = al.zeros((ROWS, COLUMNS), al.float32)
    up = al.zeros((ROWS, COLUMNS), al.float32)
    for k0 in range(0, K, DEPTH):
        xt = al.load(x[rows, k0 : k0 + DEPTH], boundary_check=(1,))
        wt = al.load(w[e, n0 : n0 + COLUMNS, k0 : k0 + DEPTH], boundary_check=(0, 1))
        ut = al.load(w[e, C + n0 : C + n0 + COLUMNS, k0 : k0 + DEPTH], boundary_check=(0, 1))
        gate = al.mma(xt, wt, gate)
        up = al.mma(xt, ut, up)
    result = gate * al.sigmoid(gate) * up
    al.store(out[p, n0 : n0 + COLUMNS], result.to(al.bfloat16), mask=(p < end)[:, None], boundary_check=(1,))
