"""A copy of `examples/grouped_matmul.py` in which the last tile of an expert stores one row of the next expert."""

import argus
import argus.language as al


@argus.kernel(num_warps=4)
def grouped_matmul_rejected(
    x: al.Tensor[al.bfloat16, "T K"],
    offsets: al.Tensor[al.int32, "E1"],
    w: al.Tensor[al.bfloat16, "E N K"],
    out: al.Tensor[al.bfloat16, "T N"],
    most: al.int32,
    BM: al.constexpr = 64,
    BN: al.constexpr = 64,
    BK: al.constexpr = 64,
):
    T, K = x.shape
    E, N = w.shape[0], w.shape[1]
    al.requires((offsets.shape[0] == E + 1) & (T < 2**30) & (0 <= most) & (most <= T))
    al.requires(al.offsets(offsets, T, longest=most))
    al.covers(out, at=lambda e, t, n: (t, n), where=lambda e, t, n: (offsets[e] <= t) & (t < offsets[e + 1]))
    al.spec(out, lambda e, t, n: al.sum(lambda k: x[t, k] * w[e, n, k]))
    pid_m, pid_n, e = al.grid(al.cdiv(most, BM), al.cdiv(N, BN), E)
    begin, end = al.load(offsets[e]), al.load(offsets[e + 1])
    m0, n0 = begin + pid_m * BM, pid_n * BN
    row = m0 + al.arange(BM)
    deep = al.where(m0 < end, K, 0)
    acc = al.zeros((BM, BN), al.float32)
    for k0 in al.pipelined(0, deep, BK, stages=4, producer_warps=4):
        xt = al.stage(x[m0 : m0 + BM, k0 : k0 + BK], boundary_check=(0, 1))
        wt = al.stage(w[e, n0 : n0 + BN, k0 : k0 + BK], boundary_check=(0, 1))
        acc = al.mma(xt, wt, acc)
    al.store(out[row, n0 : n0 + BN], acc.to(al.bfloat16), mask=(row <= end)[:, None], boundary_check=(1,))
