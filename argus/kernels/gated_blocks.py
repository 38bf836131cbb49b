"""Multiply float8 rows by gates and values of their experts, with a scale for each block, and activate, in one launch.

Rows, tiles and experts are those of `argus.kernels.experts`; blocks and scales those of `argus.kernels.blockwise`: 128
elements of a row of activations, 128 x 128 elements of weights. The sum of a block is scaled and added in float32.

A step of the loop multiplies DEPTH elements, a block or a part of one. Scales of the next step are loaded at the end
of a step, because the products of the next one hide how long that takes.
"""

from __future__ import annotations

import argus
import argus.language as al
from argus.kernels.blockwise import SIDE
from argus.kernels.experts import row_of


@argus.func
def scale_of(scale_x, token, p, k):
    """Return the scale of element k of row p."""
    return scale_x[k // SIDE, p] if token is None else scale_x[k // SIDE, token[p]]


@argus.func
def summed(x, scale_x, token, owner, w, scale_w, i, p, row, n, half):
    """Return the product of row p and row `row` of its expert's weights, whose scales are those of column n of a half.
    """
    return al.sum(
        lambda k: (
            row_of(x, token, p, k)
            * scale_of(scale_x, token, p, k)
            * (w[owner[i], row, k] * scale_w[owner[i], half, n // SIDE, k // SIDE])
        )
    )


@argus.kernel(num_warps=8)
def gated_block_rows(
    x: al.Tensor[DTYPE, "T K"],
    scale_x: al.Tensor[al.float32, "G T"],
    token: al.Tensor[al.int32, "P"] | None,
    first: al.Tensor[al.int32, "L1"],
    owner: al.Tensor[al.int32, "L1"],
    w: al.Tensor[DTYPE, "E N K"],
    scale_w: al.Tensor[al.float32, "E H L G"],
    out: al.Tensor[OUT, "P C"],
    DTYPE: al.constexpr = al.float8_e4m3fnuz,
    OUT: al.constexpr = al.bfloat16,
    ACTIVATION: al.constexpr = None,
    ROWS: al.constexpr = 256,
    COLUMNS: al.constexpr = 128,
    DEPTH: al.constexpr = 64,
    STAGES: al.constexpr = 2,
    TOGETHER: al.constexpr = 8,
):
    """Compute `out[p, n]`: with e the expert of row p and g = k // 128, the sum over k of the row's elements, times
    their scales, times `w[e, n, k] * scale_w[e, 0, n // 128, g]`; or the activation of that and of the same for column
    C + n, whose scales are those of the second half."""
    T, K, E, N, P, C = x.shape[0], x.shape[1], w.shape[0], w.shape[1], out.shape[0], out.shape[1]
    G, H, L = scale_x.shape[0], scale_w.shape[1], scale_w.shape[2]
    assert SIDE % COLUMNS == 0 and SIDE % DEPTH == 0, "a tile of weights lies within a block"
    al.requires((first.shape[0] > 1) & (0 < T) & (T < 2**30) & (P < 2**30) & (0 < E) & (0 < K) & (K < 2**30))
    al.requires((G * SIDE >= K) & (L * SIDE >= C))
    al.requires((H == 1) & (N == C) if ACTIVATION is None else (H == 2) & (N == 2 * C))
    al.requires(T == P if token is None else 0 < T)
    al.requires(al.in_range(owner, 0, E))
    al.requires(al.offsets(first, P, longest=ROWS))
    if token is not None:
        al.requires(al.in_range(token, 0, T))
    al.covers(out, at=lambda i, p, n: (p, n), where=lambda i, p, n: (first[i] <= p) & (p < first[i + 1]))
    # fmt: off
    if ACTIVATION is None:
        al.spec(out, lambda i, p, n: summed(x, scale_x, token, owner, w, scale_w, i, p, n, n, 0))
    else:
        al.spec(out, lambda i, p, n: ACTIVATION(
            summed(x, scale_x, token, owner, w, scale_w, i, p, n, n, 0),
            summed(x, scale_x, token, owner, w, scale_w, i, p, C + n, n, 1)))
    # fmt: on
    i, column = al.grid(first.shape[0] - 1, al.cdiv(C, COLUMNS), group=TOGETHER)
    m0, end, e, n0 = al.load(first[i]), al.load(first[i + 1]), al.load(owner[i]), column * COLUMNS
    p = m0 + al.arange(ROWS)
    gate = al.zeros((ROWS, COLUMNS), al.float32)
    if token is None:
        scale = al.load(scale_x[0, m0 : m0 + ROWS], boundary_check=(0,))
    else:
        q = m0 + al.arange(ROWS)
        rows = al.load(token[q], mask=q < end)
        r = m0 + al.arange(ROWS)
        scaled = al.load(token[r], mask=r < end)
        scale = al.load(scale_x[0, scaled])
    of_gate = al.load(scale_w[e, 0, n0 // SIDE, 0])
    if ACTIVATION is not None:
        up = al.zeros((ROWS, COLUMNS), al.float32)
        of_up = al.load(scale_w[e, 1, n0 // SIDE, 0])
    for k0 in al.pipelined(0, K, DEPTH, stages=STAGES):
        if token is None:
            xt = al.stage(x[m0 : m0 + ROWS, k0 : k0 + DEPTH], boundary_check=(0, 1))
        else:
            xt = al.stage(x[rows, k0 : k0 + DEPTH], boundary_check=(1,))
        wt = al.stage(w[e, n0 : n0 + COLUMNS, k0 : k0 + DEPTH], boundary_check=(0, 1))
        if ACTIVATION is not None:
            ut = al.stage(w[e, C + n0 : C + n0 + COLUMNS, k0 : k0 + DEPTH], boundary_check=(0, 1))
        sums = al.mma(xt, wt, al.zeros((ROWS, COLUMNS), al.float32))
        gate += sums * (scale * of_gate)[:, None]
        if ACTIVATION is not None:
            more = al.mma(xt, ut, al.zeros((ROWS, COLUMNS), al.float32))
            up += more * (scale * of_up)[:, None]
        g = al.minimum((k0 + DEPTH) // SIDE, G - 1)  # the last step loads what nothing uses
        if token is None:  # noqa: SIM108 (too long for one line)
            scale = al.load(scale_x[g, m0 : m0 + ROWS], boundary_check=(0,))
        else:
            scale = al.load(scale_x[g, scaled])
        of_gate = al.load(scale_w[e, 0, n0 // SIDE, g])
        if ACTIVATION is not None:
            of_up = al.load(scale_w[e, 1, n0 // SIDE, g])
    result = gate if ACTIVATION is None else ACTIVATION(gate, up)
    al.store(out[p, n0 : n0 + COLUMNS], result.to(OUT), mask=(p < end)[:, None], boundary_check=(1,))
