"""A copy of `examples/gathered_matmul.py` in which the last tile of an expert stores one row of the next expert."""

import argus
import argus.language as al


@argus.kernel(num_warps=4)
def gathered_matmul_rejected(
    x: al.Tensor[al.bfloat16, "T K"],
    token: al.Tensor[al.int32, "P"],
    offsets: al.Tensor[al.int32, "E1"],
    w: al.Tensor[al.bfloat16, "E N K"],
    out: al.Tensor[al.bfloat16, "P N"],
    most: al.int32,
    BM: al.constexpr = 64,
    BN: al.constexpr = 64,
    BK: al.constexpr = 64,
):
    T, K = x.shape
    P = token.shape[0]
    E, N = w.shape[0], w.shape[1]
    al.requires((offsets.shape[0] == E + 1) & (P < 2**30) & (0 <= most) & (most <= P))
    al.requires(al.in_range(token, 0, T))
    al.requires(al.offsets(offsets, P, longest=most))
    al.covers(out, at=lambda e, p, n: (p, n), where=lambda e, p, n: (offsets[e] <= p) & (p < offsets[e + 1]))
    al.spec(out, lambda e, p, n: al.sum(lambda k: x[token[p], k] * w[e, n, k]))
    pid_m, pid_n, e = al.grid(al.cdiv(most, BM), al.cdiv(N, BN), E)
    begin, end = al.load(offsets[e]), al.load(offsets[e + 1])
    m0, n0 = begin + pid_m * BM, pid_n * BN
    place = m0 + al.arange(BM)
    live = place < end
    rows = al.load(token[place], mask=live)
    deep = al.where(m0 < end, K, 0)
    acc = al.zeros((BM, BN), al.float32)
    for k0 in al.pipelined(0, deep, BK, stages=4, producer_warps=8):
        xt = al.stage(x[rows, k0 : k0 + BK], boundary_check=(1,))
        wt = al.stage(w[e, n0 : n0 + BN, k0 : k0 + BK], boundary_check=(0, 1))
        acc = al.mma(xt, wt, acc)
    al.store(out[place, n0 : n0 + BN], acc.to(al.bfloat16), mask=(place <= end)[:, None], boundary_check=(1,))
