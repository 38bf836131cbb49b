"""Multiply rows by the weights of their experts, and sum the outputs of each token's experts.

Rows are sorted by expert and cut into tiles (`argus.kernels.dispatch`): tile i has the rows `first[i] .. first[i + 1]`,
all of expert `owner[i]`. The grid therefore depends on sizes alone, uneven experts are balanced, and the host never
needs to know how many rows an expert has. Rows of `x` are either the rows themselves, which the copy engine loads
(sm_90a), or the rows that `token` names, which threads gather. For the copy engine rows are gathered first
(`gather_rows`), because each is read for many columns. Unused tiles at the end are empty and store nothing.

`WEIGHTS` names the dimensions of weights as memory has them: the backward pass sums over those that are rows here.
With an activation, weights hold an expert's gates followed by the values that the gates multiply. One loop computes
both products.
"""

from __future__ import annotations

import argus
import argus.language as al
from argus.kernels.exponentials import root

SQRT_HALF = 0.7071067811865476
LIMIT = 7.0  # of `clamped_swiglu`
SLOPE = 1.702


@argus.func
def swiglu(gate, up):
    """Return `silu(gate) * up`."""
    return gate * (root(gate) * root(gate)) * up


@argus.func
def geglu(gate, up):
    """Return `gelu(gate) * up`."""
    return 0.5 * gate * (1.0 + al.erf(gate * SQRT_HALF)) * up


@argus.func
def clamped_swiglu(gate, up):
    """Return `g * sigmoid(1.702 g) * (u + 1)`, where g is the gate limited to at most 7, and u is `up` limited to -7 ..
    7."""
    return (
        al.minimum(gate, LIMIT)
        * (root(SLOPE * al.minimum(gate, LIMIT)) * root(SLOPE * al.minimum(gate, LIMIT)))
        * (al.minimum(al.maximum(up, -LIMIT), LIMIT) + 1.0)
    )


@argus.func
def row_of(x, token, p, k):
    """Return element k of row p."""
    return x[p, k] if token is None else x[token[p], k]


@argus.kernel(num_warps=8)
def expert_rows(
    x: al.Tensor[DTYPE, "T K"],
    token: al.Tensor[al.int32, "P"] | None,
    first: al.Tensor[al.int32, "L1"],
    owner: al.Tensor[al.int32, "L1"],
    w: al.Tensor[DTYPE, "WEIGHTS"],
    out: al.Tensor[DTYPE, "P C"],
    DTYPE: al.constexpr = al.bfloat16,
    ACTIVATION: al.constexpr = None,
    WEIGHTS: al.constexpr = "E N K",
    ROWS: al.constexpr = 128,
    COLUMNS: al.constexpr = 128,
    DEPTH: al.constexpr = 64,
    STAGES: al.constexpr = 4,
    PRODUCERS: al.constexpr = 4,
    SWAPPED: al.constexpr = False,
    TOGETHER: al.constexpr = 8,
    SCHEDULE: al.constexpr = "cooperative",
):
    """Compute `out[p, n] = sum(x[p, :] * w[e, n, :])`, with e the expert of row p; or the activation of columns n and C
    + n."""
    TURNED = WEIGHTS == "E K N"
    T, K, E, N, P, C = x.shape[0], x.shape[1], w.shape[0], w.shape[2 if TURNED else 1], out.shape[0], out.shape[1]
    assert not (TURNED and (SWAPPED or ACTIVATION is not None)), "turned weights are the columns of a plain product"
    al.requires((first.shape[0] > 1) & (0 < T) & (T < 2**30) & (P < 2**30) & (0 < E) & (0 < K))
    al.requires(N == C if ACTIVATION is None else N == 2 * C)
    al.requires(T == P if token is None else 0 < T)
    al.requires(al.in_range(owner, 0, E))
    al.requires(al.offsets(first, P, longest=ROWS))
    if token is not None:
        al.requires(al.in_range(token, 0, T))
    al.covers(out, at=lambda i, p, n: (p, n), where=lambda i, p, n: (first[i] <= p) & (p < first[i + 1]))
    if TURNED:
        al.spec(out, lambda i, p, n: al.sum(lambda k: row_of(x, token, p, k) * w[owner[i], k, n]))
    elif ACTIVATION is None:
        al.spec(out, lambda i, p, n: al.sum(lambda k: row_of(x, token, p, k) * w[owner[i], n, k]))
    else:
        al.spec(
            out,
            lambda i, p, n: ACTIVATION(
                al.sum(lambda k: row_of(x, token, p, k) * w[owner[i], n, k]),
                al.sum(lambda k: row_of(x, token, p, k) * w[owner[i], C + n, k]),
            ),
        )
    # A few tiles of rows at a time pass through all columns, so that tiles of one expert share its weights in the
    # cache.
    tiles, columns = first.shape[0] - 1, al.cdiv(C, COLUMNS)
    i, column = al.grid(tiles, columns, group=TOGETHER, persistent=PRODUCERS > 0, schedule=SCHEDULE)
    m0, end, e, n0 = al.load(first[i]), al.load(first[i + 1]), al.load(owner[i]), column * COLUMNS
    p = m0 + al.arange(ROWS)
    if token is not None:
        q = m0 + al.arange(ROWS)
        rows = al.load(token[q], mask=q < end)
    tile = (COLUMNS, ROWS) if SWAPPED else (ROWS, COLUMNS)
    gate = al.zeros(tile, al.float32)
    if ACTIVATION is not None:
        up = al.zeros(tile, al.float32)
    for k0 in al.pipelined(0, K, DEPTH, stages=STAGES, producer_warps=PRODUCERS):
        if token is None:
            xt = al.stage(x[m0 : m0 + ROWS, k0 : k0 + DEPTH], boundary_check=(0, 1))
        else:
            xt = al.stage(x[rows, k0 : k0 + DEPTH], boundary_check=(1,))
        if TURNED:
            wt = al.stage(w[e, k0 : k0 + DEPTH, n0 : n0 + COLUMNS], boundary_check=(0, 1))
        else:
            wt = al.stage(w[e, n0 : n0 + COLUMNS, k0 : k0 + DEPTH], boundary_check=(0, 1))
        if ACTIVATION is not None:
            ut = al.stage(w[e, C + n0 : C + n0 + COLUMNS, k0 : k0 + DEPTH], boundary_check=(0, 1))
        if SWAPPED:
            gate = al.mma(wt, xt, gate)
            if ACTIVATION is not None:
                up = al.mma(ut, xt, up)
        else:
            gate = al.mma(xt, al.trans(wt) if TURNED else wt, gate)
            if ACTIVATION is not None:
                up = al.mma(xt, ut, up)
    result = (gate if ACTIVATION is None else ACTIVATION(gate, up)).to(DTYPE)
    if SWAPPED:
        al.store(al.trans(out[p, n0 : n0 + COLUMNS]), result, mask=(p < end)[None, :], boundary_check=(0,))
    else:
        al.store(out[p, n0 : n0 + COLUMNS], result, mask=(p < end)[:, None], boundary_check=(1,))


@argus.kernel
def gather_rows(
    x: al.Tensor[DTYPE, "T K"],
    token: al.Tensor[al.int32, "P"],
    factor: al.Tensor[al.float32, "P"] | None,
    out: al.Tensor[DTYPE, "P K"],
    DTYPE: al.constexpr = al.bfloat16,
    BLOCK: al.constexpr = 2048,
):
    """Compute `out[p] = x[token[p]]`, times `factor[p]`."""
    T, K, P = x.shape[0], x.shape[1], out.shape[0]
    al.requires(al.in_range(token, 0, T))
    al.spec(out, lambda p, k: x[token[p], k] if factor is None else factor[p] * x[token[p], k])
    p, column = al.grid(P, al.cdiv(K, BLOCK), group=2)  # blocks follow rows; other axes of the hardware end at 65535
    k = column * BLOCK + al.arange(BLOCK)
    row = al.load(x[al.load(token[p]), k], mask=k < K)
    if factor is None:
        al.store(out[p, k], row, mask=k < K)
    else:
        scaled = al.load(factor[p]) * row.to(al.float32)
        al.store(out[p, k], scaled.to(DTYPE), mask=k < K)


@argus.kernel
def combine_rows(
    y: al.Tensor[DTYPE, "P N"],
    place: al.Tensor[al.int32, "T K"],
    weights: al.Tensor[al.float32, "T K"],
    more: al.Tensor[DTYPE, "T N"] | None,
    out: al.Tensor[DTYPE, "T N"],
    DTYPE: al.constexpr = al.bfloat16,
    BLOCK: al.constexpr = 1024,
    CHOICES: al.constexpr = 8,
):
    """Compute `out[t] = sum(weights[t, j] * y[place[t, j]])`, in the order of j, and `more[t]`."""
    T, N, K = out.shape[0], out.shape[1], place.shape[1]
    al.requires(K == CHOICES)
    al.requires(al.in_range(place, 0, y.shape[0]))
    al.spec(
        out,
        lambda t, n: al.sum(lambda j: weights[t, j] * y[place[t, j], n]) + (0.0 if more is None else more[t, n]),
    )
    t, column = al.grid(T, al.cdiv(N, BLOCK), group=2)
    n = column * BLOCK + al.arange(BLOCK)
    total = al.zeros((BLOCK,), al.float32)
    for j in al.static_range(CHOICES):
        row = al.load(y[al.load(place[t, j]), n], mask=n < N)
        total += al.load(weights[t, j]) * row.to(al.float32)
    if more is not None:
        total += al.load(more[t, n], mask=n < N).to(al.float32)
    al.store(out[t, n], total.to(DTYPE), mask=n < N)
