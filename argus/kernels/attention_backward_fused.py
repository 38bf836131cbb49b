"""The gradients of attention in one kernel of five products: what blocks of keys give queries is added by the copy
engine, in no fixed order."""

from __future__ import annotations

from typing import TYPE_CHECKING

import argus
import argus.language as al
from argus.backend.launch.evaluate import Number
from argus.kernels.attention_weights import key_gradient, query_gradient, value_gradient
from argus.kernels.exponentials import LN2, LOG2E
from argus.runtime.work import Call

if TYPE_CHECKING:
    import torch

FUSED_KEYS = 2048
"""Number of keys that a row sees on average from which on this is faster than a kernel for queries of their own, as
measured on an H200. Fewer do not pay for the float32 sums."""
ORDERS = {64: "M D", 128: "D M"}
"""Rows and elements in the sums for queries, by the size of heads: a product that is added to them has 128 rows."""
STEPS = {64: 128, 128: 64}
"""Number of queries in a turn, by the size of heads."""


@argus.func
def element(x):
    """Return the element of a head that row x of `sums` holds, where elements are rows.

    Of eight, the first and the fifth lie next to each other, and so on: threads whose stores to a panel go together
    have elements 0 to 3 of eight, which meet no bank conflicts in every second row.
    """
    return x // 8 * 8 + x % 2 * 4 + x % 8 // 2


@argus.kernel(num_warps=8)
def attention_backward_blocks(
    q: al.Tensor[DTYPE, "B H GROUP M D"],
    k: al.Tensor[DTYPE, "B H N D"],
    v: al.Tensor[DTYPE, "B H N D"],
    dy: al.Tensor[DTYPE, "B H GROUP M D"],
    lse: al.Tensor[al.float32, "B H GROUP M"],
    delta: al.Tensor[al.float32, "B H GROUP M"],
    sums: al.Tensor[al.float32, "SUMS"],
    dk: al.Tensor[DTYPE, "B H N D"],
    dv: al.Tensor[DTYPE, "B H N D"],
    scale: al.float32,
    DTYPE: al.constexpr = al.bfloat16,
    D: al.constexpr = 128,
    GROUP: al.constexpr = 1,
    CAUSAL: al.constexpr = False,
    BLOCK: al.constexpr = 128,
    STEP: al.constexpr = 64,
    STAGES: al.constexpr = 2,
    HEADS: al.constexpr = 33,
    SUMS: al.constexpr = "B H GROUP D M",
):
    """All gradients at once: `dk` and `dv` as `attention_backward_keys`, and `sums += (p * slope) @ k` without `scale`.

    The product that is added to `sums` has 128 rows: elements of heads of 128, or 128 queries (SUMS). Slopes go from
    the registers of all warps through a shared tile, which the product reads across.
    """
    B, H, M, N = q.shape[0], q.shape[1], q.shape[3], k.shape[2]
    al.requires(M * GROUP <= 2**30)
    al.requires(scale > 0.0)
    reach = N - M if CAUSAL else N
    al.spec(dv, lambda b, h, j, e: value_gradient(q, k, dy, lse, b, h, j, e, reach, scale, 0))
    al.spec(dk, lambda b, h, j, d: key_gradient(q, k, v, dy, lse, delta, b, h, j, d, reach, scale, 0))
    if SUMS == "B H GROUP D M":
        al.spec(
            sums,
            lambda b, h, g, x, i: query_gradient(q, k, v, dy, lse, delta, b, h, g, i, element(x), reach, scale, 0),
        )
    else:
        al.spec(sums, lambda b, h, g, i, d: query_gradient(q, k, v, dy, lse, delta, b, h, g, i, d, reach, scale, 0))
    if CAUSAL:
        head, batch, place = al.grid(H, B, al.cdiv(N, BLOCK), group=HEADS, persistent=True)
    else:
        place, head, batch = al.grid(al.cdiv(N, BLOCK), H, B, persistent=True)
    n0 = place * BLOCK
    keys = n0 + al.arange(BLOCK)
    begin = al.maximum(n0 - (N - M + 3) // 4 * 4, 0) if CAUSAL else 0  # where the copy engine may add
    kt = al.stage(k[batch, head, n0 : n0 + BLOCK, :], boundary_check=(0,))
    vt = al.stage(v[batch, head, n0 : n0 + BLOCK, :], boundary_check=(0,))
    values, scores = al.zeros((BLOCK, D), al.float32), al.zeros((BLOCK, D), al.float32)
    turns = al.cdiv(al.maximum(M - begin, 1), STEP) * GROUP  # the same rows of one head after the other
    for turn in al.pipelined(0, turns, 1, stages=STAGES, producer_warps=4):
        one, first = turn % GROUP, begin + turn // GROUP * STEP
        rows = first + al.arange(STEP)
        qt = al.stage(q[batch, head, one, first : first + STEP, :], boundary_check=(0,))
        lt = al.stage(lse[batch, head, one, first : first + STEP], boundary_check=(0,))
        dt = al.stage(dy[batch, head, one, first : first + STEP, :], boundary_check=(0,))
        mt = al.stage(delta[batch, head, one, first : first + STEP], boundary_check=(0,))
        # Products take all that shared memory delivers: what is loaded behind them comes when they are done.
        level = al.load(lt) * LOG2E
        s = al.mma(kt, qt, al.zeros((BLOCK, STEP), al.float32))
        g = al.mma(vt, dt, al.zeros((BLOCK, STEP), al.float32))
        p = al.exp2(al.fma(s, scale, -level[None, :]))
        if CAUSAL:
            if first < n0 + BLOCK - (N - M) - 1:
                p = al.where(keys[:, None] <= rows[None, :] + (N - M), p, 0.0)
        else:
            if N < n0 + BLOCK:  # scores of 0 may have infinite weights, and infinity times a key of 0 is no number
                p = al.where(keys[:, None] < N, p, 0.0)
        mean = al.load(mt)
        # All are rounded before a product starts that reads one: registers have no room for weights beside gradients.
        slopes = (p * (g - mean[None, :])).to(DTYPE)
        weights = p.to(DTYPE)
        values = al.mma(weights, al.trans(dt), values)
        rt = al.stage(slopes)
        if SUMS == "B H GROUP D M":
            part = al.mma(al.trans(kt), al.trans(rt), al.zeros((D, STEP), al.float32))
            scores = al.mma(slopes, al.trans(qt), scores)
            part = al.reshape(al.permute(al.reshape(part, (D // 8, 2, 4, STEP)), (0, 2, 1, 3)), (D, STEP))
            al.atomic_add(sums[batch, head, one, :, first : first + STEP], part, boundary_check=(1,))
        else:
            part = al.mma(al.trans(rt), al.trans(kt), al.zeros((STEP, D), al.float32))
            scores = al.mma(rt, al.trans(qt), scores)
            al.atomic_add(sums[batch, head, one, first : first + STEP, :], part, boundary_check=(0,))
    al.store(dv[batch, head, n0 : n0 + BLOCK, :], values.to(DTYPE), boundary_check=(0,))
    al.store(dk[batch, head, n0 : n0 + BLOCK, :], (scores * (scale * LN2)).to(DTYPE), boundary_check=(0,))


@argus.kernel(num_warps=4)
def attention_backward_scaled(
    sums: al.Tensor[al.float32, "SUMS"],
    dq: al.Tensor[DTYPE, "B H M D"],
    scale: al.float32,
    DTYPE: al.constexpr = al.bfloat16,
    D: al.constexpr = 128,
    ROWS: al.constexpr = 64,
    SUMS: al.constexpr = "B H D M",
):
    """`dq = sums * scale`, rounded; `sums` may be columns."""
    B, H, M = dq.shape[0], dq.shape[1], dq.shape[2]
    place, head, batch = al.grid(al.cdiv(M, ROWS), H, B)
    first = place * ROWS
    if SUMS == "B H D M":
        al.spec(dq, lambda b, h, i, d: sums[b, h, d // 8 * 8 + d % 4 * 2 + d % 8 // 4, i] * (scale * LN2))
        columns = al.load(sums[batch, head, :, first : first + ROWS], boundary_check=(1,)) * (scale * LN2)
        columns = al.reshape(al.permute(al.reshape(columns, (D // 8, 4, 2, ROWS)), (0, 2, 1, 3)), (D, ROWS))
        x = al.trans(columns.to(DTYPE))
    else:
        al.spec(dq, lambda b, h, i, d: sums[b, h, i, d] * (scale * LN2))
        x = (al.load(sums[batch, head, first : first + ROWS, :], boundary_check=(0,)) * (scale * LN2)).to(DTYPE)
    al.store(dq[batch, head, first : first + ROWS, :], x, boundary_check=(0,))


def fused_calls(
    given: tuple[torch.Tensor, ...],
    sums: torch.Tensor,
    made: tuple[torch.Tensor, ...],
    scale: tuple[Number, ...],
    constants: dict[str, object],
) -> tuple[Call, Call]:
    """Return the launches that compute the gradients `made` of q, k and v.

    `given` are q, k, v, dy, lse and delta, those of rows as `[B, H, GROUP, M, ...]`; `sums` hold zeros.
    """
    size, apart = given[0].shape[4], sums.view(*given[0].shape[:3], *sums.shape[2:])
    tile = {"STEP": STEPS[size], "SUMS": f"B H GROUP {ORDERS[size]}"}
    blocks = Call(attention_backward_blocks, (*given, apart, *made[1:], *scale), {**constants, **tile})
    few = {"DTYPE": constants["DTYPE"], "D": size, "SUMS": f"B H {ORDERS[size]}"}
    return blocks, Call(attention_backward_scaled, (sums, made[0], *scale), few)
