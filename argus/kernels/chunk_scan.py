"""Linear attention with decay, computed in chunks, as in Mamba-2 (SSD) and gated linear attention.

    out[t] = sum over s <= t of exp(level[t + 1] - level[s + 1]) (q[t] . k[s]) v[s]

`level[t]` is the sum of the logarithms of the first t decays. Tokens are cut into chunks of CHUNK. `chunk_states`
computes the state that each chunk contributes. `states_before` adds the contributions of all earlier chunks, as a
product with a triangular matrix of decays between chunks. `chunk_outputs` adds the contribution of a chunk's own
tokens. All exponents are differences of levels, which are at most 0 if the logarithms of decays are, so nothing
overflows for sequences of any length.
"""

from __future__ import annotations

import argus
import argus.language as al
from argus.kernels.exponentials import LOG2E


@argus.func
def end_of(c, T, CHUNK):
    """Return the first token after chunk c."""
    return al.minimum(c * CHUNK + CHUNK, T)


@argus.func
def decay(later, earlier):
    """Return the factor by which a value decays from one level to a later one."""
    return al.exp2((later - earlier) * LOG2E)


@argus.kernel
def levels(
    log_decay: al.Tensor[al.float32, "B T H"],
    level: al.Tensor[al.float32, "B H T1"],
    BLOCK: al.constexpr = 1024,
):
    """Compute `level[b, h, t] = sum(log_decay[b, u, h] for u < t)`, for t up to T."""
    B, T, H = log_decay.shape
    al.requires(level.shape[2] == T + 1)
    al.spec(level, lambda b, h, t: al.sum(lambda u: al.where(u < t, log_decay[b, u, h], 0.0)))
    h, b = al.grid(H, B)
    before = al.zeros((1,), al.float32)
    for t0 in range(0, T + 1, BLOCK):
        t = t0 + al.arange(BLOCK)
        some = al.load(log_decay[b, t - 1, h], mask=(0 < t) & (t <= T))
        al.store(level[b, h, t], before + al.cumsum(some, 0), mask=t <= T)
        before += al.sum(some, keep_dims=True)


@argus.kernel(num_warps=4)
def chunk_states(
    k: al.Tensor[DTYPE, "B T J E"],
    v: al.Tensor[DTYPE, "B T H D"],
    level: al.Tensor[al.float32, "B H T1"],
    states: al.Tensor[DTYPE, "B H C D E"],
    DTYPE: al.constexpr = al.bfloat16,
    CHUNK: al.constexpr = 64,
    SHARED: al.constexpr = 1,
    D_BLOCK: al.constexpr = 64,
    E_BLOCK: al.constexpr = 64,
):
    """Compute `states[b, h, c, d, e]`: the sum over tokens s of chunk c of `v[s, d] k[s, e]`, decayed up to the chunk's
    end."""
    B, T, H, D, E, J, C = k.shape[0], k.shape[1], v.shape[2], v.shape[3], k.shape[3], k.shape[2], states.shape[2]
    al.requires((level.shape[2] == T + 1) & (J * SHARED == H) & (C == al.cdiv(T, CHUNK)))
    al.requires((D <= D_BLOCK) & (E <= E_BLOCK) & (T < 2**28))
    al.spec(
        states,
        lambda b, h, c, d, e: al.sum(
            lambda s: al.where(
                s // CHUNK == c,
                v[b, s, h, d] * decay(level[b, h, end_of(c, T, CHUNK)], level[b, h, s + 1]) * k[b, s, h // SHARED, e],
                0.0,
            )
        ),
    )
    c, h, b = al.grid(C, H, B)
    t0 = c * CHUNK
    s = t0 + al.arange(CHUNK)
    left = decay(al.load(level[b, h, end_of(c, T, CHUNK)]), al.load(level[b, h, s + 1], mask=s < T))
    d = al.arange(D_BLOCK)
    values = al.load(v[b, s[:, None], h, d], mask=(s < T)[:, None] & (d < D)).to(al.float32)
    vt = al.stage((values * left[:, None]).to(DTYPE))
    kt = al.stage(k[b, t0 : t0 + CHUNK, h // SHARED, 0:E_BLOCK], boundary_check=(0, 1))
    acc = al.zeros((D_BLOCK, E_BLOCK), al.float32)
    acc = al.mma(al.trans(vt), al.trans(kt), acc)
    al.store(states[b, h, c, 0:D_BLOCK, 0:E_BLOCK], acc.to(DTYPE), boundary_check=(0, 1))


@argus.kernel(num_warps=4)
def states_before(
    states: al.Tensor[DTYPE, "B H C N"],
    level: al.Tensor[al.float32, "B H T1"],
    before: al.Tensor[DTYPE, "B H C N"],
    DTYPE: al.constexpr = al.bfloat16,
    CHUNK: al.constexpr = 64,
    ROWS: al.constexpr = 64,
    COLUMNS: al.constexpr = 128,
    DEPTH: al.constexpr = 32,
):
    """Compute `before[b, h, c, n]`: the sum over chunks j before c of their states, decayed from j's end to c's
    beginning."""
    B, H, C, N = states.shape
    T = level.shape[2] - 1
    al.requires((C == al.cdiv(T, CHUNK)) & (T < 2**28))
    al.spec(
        before,
        lambda b, h, c, n: al.sum(
            lambda j: al.where(
                j < c,
                decay(level[b, h, c * CHUNK], level[b, h, end_of(j, T, CHUNK)]) * states[b, h, j, n],
                0.0,
            )
        ),
    )
    column, row, bh = al.grid(al.cdiv(N, COLUMNS), al.cdiv(C, ROWS), B * H)
    b, h, c0, n0 = bh // H, bh % H, row * ROWS, column * COLUMNS
    c = c0 + al.arange(ROWS)
    begin = al.load(level[b, h, c * CHUNK], mask=c < C)
    acc = al.zeros((ROWS, COLUMNS), al.float32)
    for j0 in al.pipelined(0, al.minimum(c0 + ROWS, C), DEPTH, stages=2):
        j = j0 + al.arange(DEPTH)
        st = al.stage(states[b, h, j0 : j0 + DEPTH, n0 : n0 + COLUMNS], boundary_check=(0, 1))
        end = al.load(level[b, h, end_of(j, T, CHUNK)], mask=j < C)
        left = al.where((j[None, :] < c[:, None]) & (c < C)[:, None], decay(begin[:, None], end[None, :]), 0.0)
        acc = al.mma(left.to(DTYPE), al.trans(st), acc)
    al.store(before[b, h, c0 : c0 + ROWS, n0 : n0 + COLUMNS], acc.to(DTYPE), boundary_check=(0, 1))


@argus.kernel(num_warps=4)
def chunk_outputs(
    q: al.Tensor[DTYPE, "B T J E"],
    k: al.Tensor[DTYPE, "B T J E"],
    v: al.Tensor[DTYPE, "B T H D"],
    level: al.Tensor[al.float32, "B H T1"],
    before: al.Tensor[DTYPE, "B H C D E"],
    out: al.Tensor[DTYPE, "B T H D"],
    DTYPE: al.constexpr = al.bfloat16,
    CHUNK: al.constexpr = 64,
    SHARED: al.constexpr = 1,
    D_BLOCK: al.constexpr = 64,
    E_BLOCK: al.constexpr = 64,
):
    """Compute `out[b, t, h, d]`: what tokens of t's chunk up to t give it, and the state before the chunk."""
    B, T, H, D, E, J, C = k.shape[0], k.shape[1], v.shape[2], v.shape[3], k.shape[3], k.shape[2], before.shape[2]
    al.requires((level.shape[2] == T + 1) & (J * SHARED == H) & (C == al.cdiv(T, CHUNK)))
    al.requires((D <= D_BLOCK) & (E <= E_BLOCK) & (T < 2**28))
    al.spec(
        out,
        lambda b, t, h, d: (
            al.sum(
                lambda s: al.where(
                    (s // CHUNK == t // CHUNK) & (s <= t),
                    al.sum(lambda e: q[b, t, h // SHARED, e] * k[b, s, h // SHARED, e])
                    * decay(level[b, h, t + 1], level[b, h, s + 1])
                    * v[b, s, h, d],
                    0.0,
                )
            )
            + decay(level[b, h, t + 1], level[b, h, t // CHUNK * CHUNK])
            * al.sum(lambda e: q[b, t, h // SHARED, e] * before[b, h, t // CHUNK, d, e])
        ),
    )
    c, h, b = al.grid(C, H, B)
    t0 = c * CHUNK
    t = t0 + al.arange(CHUNK)
    own = al.load(level[b, h, t + 1], mask=t < T)
    qt = al.stage(q[b, t0 : t0 + CHUNK, h // SHARED, 0:E_BLOCK], boundary_check=(0, 1))
    kt = al.stage(k[b, t0 : t0 + CHUNK, h // SHARED, 0:E_BLOCK], boundary_check=(0, 1))
    vt = al.stage(v[b, t0 : t0 + CHUNK, h, 0:D_BLOCK], boundary_check=(0, 1))
    ht = al.stage(before[b, h, c, 0:D_BLOCK, 0:E_BLOCK], boundary_check=(0, 1))
    scores = al.mma(qt, kt, al.zeros((CHUNK, CHUNK), al.float32))
    other = al.load(level[b, h, t + 1], mask=t < T)
    seen = (t[None, :] <= t[:, None]) & (t < T)[:, None]
    weights = scores * al.where(seen, decay(own[:, None], other[None, :]), 0.0)
    acc = al.mma(weights.to(DTYPE), al.trans(vt), al.zeros((CHUNK, D_BLOCK), al.float32))
    past = al.mma(qt, ht, al.zeros((CHUNK, D_BLOCK), al.float32))
    left = decay(al.load(level[b, h, t + 1], mask=t < T), al.load(level[b, h, t0]))
    acc = acc + past * left[:, None]
    al.store(out[b, t0 : t0 + CHUNK, h, 0:D_BLOCK], acc.to(DTYPE), boundary_check=(0, 1))
