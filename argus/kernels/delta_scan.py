"""The gated delta rule in chunks, as in gated DeltaNet.

    u[t] = beta[t] (v[t] - sum over s < t of exp(level[t + 1] - level[s + 1]) (k[t] . k[s]) u[s])
    out[t] = sum over s <= t of exp(level[t + 1] - level[s + 1]) (q[t] . k[s]) u[s]

`level[t]` is the sum of the logarithms of the first t decays (`argus.kernels.chunk_scan.levels`). Tokens are cut into
chunks of CHUNK. Within a chunk, the `u` solve a system of equations with a triangular matrix, whose inverse does not
depend on earlier chunks (`chunk_inverses`). What is left are products of each chunk (`chunk_terms`), and one loop over
all chunks, in which each takes the state from the one before (`chunk_updates`). `chunk_scan.chunk_outputs` computes
`out`, with `u` in place of the values.

Inverses, states and `u` are specified by earlier rows, tokens and chunks of themselves: a recurrence.
"""

from __future__ import annotations

import argus
import argus.language as al
from argus.kernels.chunk_scan import decay


@argus.func
def link(k, beta, level, b, t, s, h, SHARED):
    """Return by how much token t takes back of what token s wrote."""
    return (
        al.sum(lambda e: k[b, t, h // SHARED, e] * k[b, s, h // SHARED, e])
        * beta[b, t, h]
        * decay(level[b, h, t + 1], level[b, h, s + 1])
    )


@argus.kernel(num_warps=4)
def chunk_inverses(
    k: al.Tensor[DTYPE, "B T J E"],
    beta: al.Tensor[al.float32, "B T H"],
    level: al.Tensor[al.float32, "B H T1"],
    inverse: al.Tensor[al.float32, "B H T R"],
    DTYPE: al.constexpr = al.bfloat16,
    CHUNK: al.constexpr = 64,
    SHARED: al.constexpr = 1,
    E: al.constexpr = 128,
):
    """Compute the inverse of the matrix of each chunk, by forward substitution: row t is that of the identity, less the
    rows of earlier tokens times their links."""
    B, T, J, H = k.shape[0], k.shape[1], k.shape[2], beta.shape[2]
    al.requires((level.shape[2] > T) & (J * SHARED == H) & (T % CHUNK == 0) & (T < 2**28))
    al.requires(inverse.shape[3] == CHUNK)
    al.spec(
        inverse,
        lambda b, h, t, j: (
            al.where(t % CHUNK == j, 1.0, 0.0)
            - al.sum(
                lambda s: al.where(
                    (s < t) & (s // CHUNK == t // CHUNK),
                    link(k, beta, level, b, t, s, h, SHARED) * inverse[b, h, s, j],
                    0.0,
                )
            )
        ),
    )
    c, h, b = al.grid(T // CHUNK, H, B)
    t0 = c * CHUNK
    i = al.arange(CHUNK)
    t = t0 + i
    kt = al.stage(k[b, t0 : t0 + CHUNK, h // SHARED, 0:E])
    own, other = al.load(level[b, h, t + 1]), al.load(level[b, h, t + 1])
    a = al.mma(kt, kt, al.zeros((CHUNK, CHUNK), al.float32))
    links = al.where(i[None, :] < i[:, None], decay(own[:, None], other[None, :]), 0.0)
    a = a * al.load(beta[b, t, h])[:, None] * links
    lower, rows = al.shared((CHUNK, CHUNK), al.float32), al.shared((CHUNK, CHUNK), al.float32)
    al.store(lower, a)
    left = al.where(i[:, None] == i[None, :], 1.0, 0.0)
    for r in range(CHUNK):
        al.store(rows, left, mask=(i == r)[:, None])
        al.barrier()
        left = left - al.load(lower[:, r])[:, None] * al.load(rows[r, :])[None, :]
    al.store(inverse[b, h, t0 : t0 + CHUNK, 0:CHUNK], al.load(rows))


@argus.kernel(num_warps=8)
def chunk_terms(
    k: al.Tensor[DTYPE, "B T J E"],
    v: al.Tensor[DTYPE, "B T H D"],
    beta: al.Tensor[al.float32, "B T H"],
    level: al.Tensor[al.float32, "B H T1"],
    inverse: al.Tensor[al.float32, "B H T R"],
    values: al.Tensor[DTYPE, "B H T D"],
    keys: al.Tensor[DTYPE, "B H T E"],
    DTYPE: al.constexpr = al.bfloat16,
    CHUNK: al.constexpr = 64,
    SHARED: al.constexpr = 1,
    D: al.constexpr = 128,
    E: al.constexpr = 128,
):
    """Compute `values = inverse @ (beta v)` and `keys = inverse @ (beta exp(level - level of the chunk's begin) k)` of
    each chunk: its `u` are `values - keys @ state`."""
    B, T, J, H = k.shape[0], k.shape[1], k.shape[2], beta.shape[2]
    al.requires((level.shape[2] > T) & (J * SHARED == H) & (T % CHUNK == 0) & (T < 2**28))
    al.requires(inverse.shape[3] == CHUNK)
    al.spec(
        values,
        lambda b, h, t, d: al.sum(
            lambda s: al.where(
                s // CHUNK == t // CHUNK, inverse[b, h, t, s % CHUNK] * (beta[b, s, h] * v[b, s, h, d]), 0.0
            )
        ),
    )
    al.spec(
        keys,
        lambda b, h, t, e: al.sum(
            lambda s: al.where(
                s // CHUNK == t // CHUNK,
                inverse[b, h, t, s % CHUNK]
                * beta[b, s, h]
                * decay(level[b, h, s + 1], level[b, h, s // CHUNK * CHUNK])
                * k[b, s, h // SHARED, e],
                0.0,
            )
        ),
    )
    c, h, b = al.grid(T // CHUNK, H, B)
    t0 = c * CHUNK
    t = t0 + al.arange(CHUNK)
    beta_t = al.load(beta[b, t, h])
    it = al.stage(al.load(inverse[b, h, t0 : t0 + CHUNK, 0:CHUNK]).to(DTYPE))
    vs = al.load(v[b, t0 : t0 + CHUNK, h, 0:D]).to(al.float32)
    vt = al.stage((vs * beta_t[:, None]).to(DTYPE))
    x = al.mma(it, al.trans(vt), al.zeros((CHUNK, D), al.float32))
    al.store(values[b, h, t0 : t0 + CHUNK, 0:D], x.to(DTYPE))
    past = beta_t * decay(al.load(level[b, h, t + 1]), al.load(level[b, h, t0]))
    ks = al.load(k[b, t0 : t0 + CHUNK, h // SHARED, 0:E]).to(al.float32)
    kt = al.stage((ks * past[:, None]).to(DTYPE))
    y = al.mma(it, al.trans(kt), al.zeros((CHUNK, E), al.float32))
    al.store(keys[b, h, t0 : t0 + CHUNK, 0:E], y.to(DTYPE))


@argus.func
def state_at(k, level, first, u, b, h, t, d, e, SHARED):
    """Return an element of the state before token t."""
    added = al.sum(
        lambda s: al.where(
            s < t, decay(level[b, h, t], level[b, h, s + 1]) * u[b, h, s, d] * k[b, s, h // SHARED, e], 0.0
        )
    )
    return added + (0.0 if first is None else decay(level[b, h, t], level[b, h, 0]) * first[b, h, d, e])


@argus.kernel(num_warps=4)
def chunk_updates(
    k: al.Tensor[DTYPE, "B T J E"],
    level: al.Tensor[al.float32, "B H T1"],
    values: al.Tensor[DTYPE, "B H T D"],
    keys: al.Tensor[DTYPE, "B H T E"],
    first: al.Tensor[al.float32, "B H D E"] | None,
    states: al.Tensor[DTYPE, "B H C D E"],
    u: al.Tensor[DTYPE, "B H T D"],
    last: al.Tensor[al.float32, "B H W F"],
    DTYPE: al.constexpr = al.bfloat16,
    CHUNK: al.constexpr = 64,
    SHARED: al.constexpr = 1,
    E: al.constexpr = 128,
    BLOCK: al.constexpr = 32,
    STAGES: al.constexpr = 2,
):
    """Compute the state before each chunk, `states`, and behind all of them, `last`: the sum over earlier tokens of `u
    k`, decayed up to there, and `first`, the state before all tokens; and `u = values - keys @ states`."""
    B, T, J, H, D, C = k.shape[0], k.shape[1], k.shape[2], u.shape[1], u.shape[3], states.shape[2]
    al.requires((level.shape[2] > T) & (J * SHARED == H) & (T == C * CHUNK) & (T < 2**28) & (D % BLOCK == 0))
    al.requires((last.shape[2] <= D) & (last.shape[3] <= E))
    al.spec(
        u,
        lambda b, h, t, d: values[b, h, t, d] - al.sum(lambda e: keys[b, h, t, e] * states[b, h, t // CHUNK, d, e]),
    )
    al.spec(states, lambda b, h, c, d, e: state_at(k, level, first, u, b, h, c * CHUNK, d, e, SHARED))
    al.spec(last, lambda b, h, d, e: state_at(k, level, first, u, b, h, T, d, e, SHARED))
    place, h, b = al.grid(D // BLOCK, H, B)
    d0 = place * BLOCK
    state = al.zeros((BLOCK, E), al.float32) if first is None else al.load(first[b, h, d0 : d0 + BLOCK, 0:E])
    for c in al.pipelined(0, C, 1, stages=STAGES):
        t0 = c * CHUNK
        t = t0 + al.arange(CHUNK)
        wt = al.stage(keys[b, h, t0 : t0 + CHUNK, 0:E])
        xt = al.stage(values[b, h, t0 : t0 + CHUNK, d0 : d0 + BLOCK])
        kt = al.stage(k[b, t0 : t0 + CHUNK, h // SHARED, 0:E])
        held = state.to(DTYPE)
        al.store(states[b, h, c, d0 : d0 + BLOCK, 0:E], held)
        ht = al.stage(held)
        known = al.load(xt).to(al.float32)
        read = al.mma(wt, ht, al.zeros((CHUNK, BLOCK), al.float32))
        new = (known - read).to(DTYPE)
        al.store(u[b, h, t0 : t0 + CHUNK, d0 : d0 + BLOCK], new)
        end = al.load(level[b, h, t0 + CHUNK])
        left = decay(end, al.load(level[b, h, t + 1]))
        ut = al.stage((new.to(al.float32) * left[:, None]).to(DTYPE))
        state = state * decay(end, al.load(level[b, h, t0]))
        state = al.mma(al.trans(ut), al.trans(kt), state)
    al.store(last[b, h, d0 : d0 + BLOCK, 0:E], state, boundary_check=(0, 1))


@argus.func
def written(k, v, log_decay, beta, before, b, h, d, SHARED):
    """Return element d of what a token writes at its key."""
    kept = al.sum(lambda n: before[b, h, d, n] * k[b, h // SHARED, n])
    return beta[b, h] * (v[b, h, d] - al.exp(log_decay[b, h]) * kept)


@argus.kernel(num_warps=4)
def delta_step(
    q: al.Tensor[DTYPE, "B J E"],
    k: al.Tensor[DTYPE, "B J E"],
    v: al.Tensor[DTYPE, "B H D"],
    log_decay: al.Tensor[al.float32, "B H"],
    beta: al.Tensor[al.float32, "B H"],
    before: al.Tensor[al.float32, "B H D E"],
    after: al.Tensor[al.float32, "B H D E"],
    out: al.Tensor[DTYPE, "B H D"],
    DTYPE: al.constexpr = al.bfloat16,
    SHARED: al.constexpr = 1,
    ROWS: al.constexpr = 16,
    BLOCK: al.constexpr = 128,
):
    """Compute the state `after` one token of each sequence from that `before` it, and the token's `out`."""
    B, J, H, D, E = q.shape[0], q.shape[1], v.shape[1], v.shape[2], q.shape[2]
    al.requires((J * SHARED == H) & (E <= BLOCK))
    al.invariant(after, B)
    al.invariant(out, B)
    al.spec(
        after,
        lambda b, h, d, e: (
            al.exp(log_decay[b, h]) * before[b, h, d, e]
            + written(k, v, log_decay, beta, before, b, h, d, SHARED) * k[b, h // SHARED, e]
        ),
    )
    al.spec(
        out,
        lambda b, h, d: (
            al.exp(log_decay[b, h]) * al.sum(lambda e: before[b, h, d, e] * q[b, h // SHARED, e])
            + written(k, v, log_decay, beta, before, b, h, d, SHARED)
            * al.sum(lambda e: k[b, h // SHARED, e] * q[b, h // SHARED, e])
        ),
    )
    place, h, b = al.grid(al.cdiv(D, ROWS), H, B)
    d, e = place * ROWS + al.arange(ROWS), al.arange(BLOCK)
    live = (d < D)[:, None] & (e < E)
    state = al.load(before[b, h, d[:, None], e], mask=live)
    kt = al.load(k[b, h // SHARED, e], mask=e < E).to(al.float32)[None, :]
    qt = al.load(q[b, h // SHARED, e], mask=e < E).to(al.float32)[None, :]
    value = al.load(v[b, h, d], mask=d < D).to(al.float32)
    left = al.exp(al.load(log_decay[b, h]))
    new = al.load(beta[b, h]) * (value - left * al.sum(state * kt, axis=1))
    al.store(after[b, h, d[:, None], e], left * state + new[:, None] * kt, mask=live)
    result = left * al.sum(state * qt, axis=1) + new * al.sum(kt * qt, axis=1)
    al.store(out[b, h, d], result.to(DTYPE), mask=d < D)
