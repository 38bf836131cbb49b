"""Attention forward, for the golden text: helpers, constants, policies, reductions, two products."""

import argus
import argus.language as al

LOG2E = 1.4426950408889634


@argus.func
def softmax_step(s, m, total):
    m_new = al.maximum(m, al.max(s, axis=1))
    alpha = al.exp2(m - m_new)
    p = al.exp2(s - m_new[:, None])
    total = total * alpha + al.sum(p, axis=1)
    return p, m_new, total, alpha


@argus.kernel(num_warps=4)
def attention(
    q: al.Tensor[al.float16, "B S D"],
    k: al.Tensor[al.float16, "B S D"],
    v: al.Tensor[al.float16, "B S D"],
    o: al.Tensor[al.float16, "B S D"],
    scale: al.float32,
    D: al.constexpr = 64,
    BM: al.constexpr = 64,
    BN: al.constexpr = 64,
    CAUSAL: al.constexpr = True,
):
    B, S = q.shape[0], q.shape[1]
    pid, b = al.grid(al.cdiv(S, BM), B)
    m0 = pid * BM
    qt = al.load(q[b, m0 : m0 + BM, :], boundary_check=(0,))
    m = al.full((BM,), -float("inf"), al.float32)
    total = al.zeros((BM,), al.float32)
    acc = al.zeros((BM, D), al.float32)
    hi = al.minimum(S, m0 + BM) if CAUSAL else S
    rows = m0 + al.arange(BM)
    for n0 in al.pipelined(0, hi, BN, stages=2):
        kt = al.stage(k[b, n0 : n0 + BN, :], boundary_check=(0,))
        vt = al.stage(v[b, n0 : n0 + BN, :], boundary_check=(0,))
        s = al.zeros((BM, BN), al.float32)
        s = al.mma(qt, kt, s)
        s = s * (scale * LOG2E)
        cols = n0 + al.arange(BN)
        live = (cols < S)[None, :]
        if CAUSAL:
            live = live & (rows[:, None] >= cols[None, :])
        s = al.where(live, s, -float("inf"))
        p, m, total, alpha = softmax_step(s, m, total)
        acc = acc * alpha[:, None]
        acc = al.mma(p.to(al.float16), al.trans(vt), acc)
    out = acc / total[:, None]
    al.store(o[b, m0 : m0 + BM, :], out.to(al.float16), boundary_check=(0,))
