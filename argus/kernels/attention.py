"""Attention, forward: online softmax over blocks of keys, with the log-sum-exp of every row."""

from __future__ import annotations

import argus
import argus.language as al

NEVER = -float("inf")
LN2 = 0.6931471805599453


@argus.func
def weigh(s, top, total, scale):
    """Softmax weights `[rows, keys]` of the scores `s` relative to the new row maxima, in base 2.

    Returns them, the new maxima and sums, and the factor by which everything summed before shrinks. Rows that have
    seen no key yet keep the maximum -inf, the sum 0, and weights of 0.
    """
    new = al.maximum(top, al.max(s, axis=1))
    shift = al.where(new == NEVER, 0.0, -new * scale)
    shrink = al.exp2(al.fma(top, scale, shift))
    w = al.exp2(al.fma(s, scale, shift[:, None]))
    return w, new, total * shrink + al.sum(w, axis=1), shrink


@argus.kernel(num_warps=8)
def attention_forward(
    q: al.Tensor[DTYPE, "B H M D"],
    k: al.Tensor[DTYPE, "B HK N D"],
    v: al.Tensor[DTYPE, "B HK N D"],
    o: al.Tensor[DTYPE, "B H M D"],
    lse: al.Tensor[al.float32, "B H M"],
    scale: al.float32,
    DTYPE: al.constexpr = al.bfloat16,
    D: al.constexpr = 128,
    GROUP: al.constexpr = 1,
    CAUSAL: al.constexpr = False,
    BLOCK_M: al.constexpr = 128,
    BLOCK_N: al.constexpr = 128,
    STAGES: al.constexpr = 2,
):
    """`o = softmax(q @ k.T * scale) @ v` for every head, `scale` times log2(e); `lse` the log-sum-exp of each row.

    GROUP heads of q share one of k and v. Causal: row i sees the keys up to i + N - M.
    """
    B, H, M = q.shape[0], q.shape[1], q.shape[2]
    HK, N = k.shape[1], k.shape[2]
    al.requires(N >= 1)
    al.requires(H == HK * GROUP)
    block, head, batch = al.grid(al.cdiv(M, BLOCK_M), H, B)
    if CAUSAL:  # the longest rows first
        m0 = (al.num_programs(0) - 1 - block) * BLOCK_M
        ends = al.minimum(m0 + al.arange(BLOCK_M) + (N - M) + 1, N)
        whole = al.minimum(m0 + (N - M) + 1, N)
        stop = al.minimum(m0 + BLOCK_M + (N - M), N)
    else:
        m0 = block * BLOCK_M
        ends = N + 0 * al.arange(BLOCK_M)
        whole = N
        stop = N
    keys = al.arange(BLOCK_N)
    kv = head // GROUP
    qt = al.stage(q[batch, head, m0 : m0 + BLOCK_M, :], boundary_check=(0,))
    kt = al.stage(k[batch, kv, 0:BLOCK_N, :], boundary_check=(0,))
    s = al.mma(qt, kt, al.zeros((BLOCK_M, BLOCK_N), al.float32))
    if whole < BLOCK_N:
        s = al.where(keys[None, :] < ends[:, None], s, NEVER)
    top = al.full((BLOCK_M,), NEVER, al.float32)
    total = al.zeros((BLOCK_M,), al.float32)
    w, top, total, shrink = weigh(s, top, total, scale)
    acc = al.zeros((BLOCK_M, D), al.float32)
    for n0 in al.pipelined(BLOCK_N, stop, BLOCK_N, stages=STAGES, producer_warps=4):
        kt = al.stage(k[batch, kv, n0 : n0 + BLOCK_N, :], boundary_check=(0,))
        vt = al.stage(v[batch, kv, n0 - BLOCK_N : n0, :], boundary_check=(0,))
        p = w.to(DTYPE)
        acc = acc * shrink[:, None]
        s = al.mma(qt, kt, al.zeros((BLOCK_M, BLOCK_N), al.float32))
        acc = al.mma(p, al.trans(vt), acc)
        if whole < n0 + BLOCK_N:
            s = al.where((n0 + keys)[None, :] < ends[:, None], s, NEVER)
        w, top, total, shrink = weigh(s, top, total, scale)
    last = al.maximum(al.cdiv(stop, BLOCK_N) - 1, 0) * BLOCK_N
    vt = al.stage(v[batch, kv, last : last + BLOCK_N, :], boundary_check=(0,))
    p = w.to(DTYPE)
    acc = al.mma(p, al.trans(vt), acc * shrink[:, None])
    y = acc * (1.0 / al.where(total == 0.0, 1.0, total))[:, None]
    al.store(o[batch, head, m0 : m0 + BLOCK_M, :], y.to(DTYPE), boundary_check=(0,))
    rows = m0 + al.arange(BLOCK_M)
    level = al.where(top == NEVER, 0.0, top * scale) + al.log2(total)
    al.store(lse[batch, head, rows], level * LN2, mask=rows < M)
