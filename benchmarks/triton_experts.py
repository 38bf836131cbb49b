"""A mixture of experts in Triton as serving systems have it, to be measured beside Argus. Imports triton.

Rows are sorted by expert, each expert's padded to whole tiles. A program multiplies a tile of rows, which it gathers
from the tokens, with a tile of its expert's weights. The tiles are tuned once for each shape.
"""

from typing import Any

import torch
import triton
import triton.language as tl

_SIDES = (16, 32, 64, 128)


def _configurations() -> list[Any]:
    shapes = ((64, 64, 1, 4, 4), (128, 64, 1, 4, 4), (128, 64, 16, 8, 4), (256, 64, 16, 8, 3), (256, 64, 16, 8, 4))
    return [
        triton.Config({"COLUMNS": c, "DEPTH": d, "TOGETHER": t}, num_warps=warps, num_stages=stages)
        for c, d, t, warps, stages in shapes
    ]


def _seconds(call: Any, quantiles: Any) -> Any:
    return triton.testing.do_bench(call, warmup=2, rep=10, quantiles=quantiles)


@triton.autotune(_configurations(), key=["N", "K", "ROWS", "tiles"], do_bench=_seconds)
@triton.jit
def _product(
    x, w, out, factor, place, owner, used, N, K, pairs, tiles, CHOSEN: tl.constexpr, WEIGHTED: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr, TOGETHER: tl.constexpr,
):  # fmt: skip
    """out[p, n] = sum(x[p // CHOSEN, :] * w[owner, n, :]) for the pairs p of a tile, times their factors."""
    columns = tl.cdiv(N, COLUMNS)
    program, band = tl.program_id(0), TOGETHER * columns
    first = program // band * TOGETHER
    height = min(tiles - first, TOGETHER)
    tile, column = first + program % band % height, program % band // height
    if tile * ROWS >= tl.load(used):
        return
    p = tl.load(place + tile * ROWS + tl.arange(0, ROWS)).to(tl.int64)
    held = p < pairs
    n, k = (column * COLUMNS + tl.arange(0, COLUMNS)) % N, tl.arange(0, DEPTH)
    rows = x + (p // CHOSEN)[:, None] * K + k[None, :]
    weights = w + tl.load(owner + tile).to(tl.int64) * N * K + n[None, :].to(tl.int64) * K + k[:, None]
    total = tl.zeros((ROWS, COLUMNS), tl.float32)
    for step in range(tl.cdiv(K, DEPTH)):
        left = tl.load(rows + step * DEPTH, mask=held[:, None] & (k[None, :] < K - step * DEPTH), other=0.0)
        right = tl.load(weights + step * DEPTH, mask=k[:, None] < K - step * DEPTH, other=0.0)
        total = tl.dot(left, right, total)
    if WEIGHTED:
        total *= tl.load(factor + p, mask=held, other=0.0)[:, None]
    n = column * COLUMNS + tl.arange(0, COLUMNS)
    tl.store(out + p[:, None] * N + n[None, :], total.to(out.dtype.element_ty), mask=held[:, None] & (n[None, :] < N))


@triton.jit
def _gated(both, out, width, BLOCK: tl.constexpr):
    """out[p, i] = silu(both[p, i]) * both[p, width + i]"""
    p, i = tl.program_id(0).to(tl.int64), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    gate = tl.load(both + p * 2 * width + i, mask=i < width).to(tl.float32)
    up = tl.load(both + p * 2 * width + width + i, mask=i < width).to(tl.float32)
    tl.store(out + p * width + i, (gate / (1 + tl.exp(-gate)) * up).to(out.dtype.element_ty), mask=i < width)


def mixture(x: Any, logits: Any, w1: Any, w2: Any, topk: int) -> Any:
    """The weighted sum of what each token's `topk` experts make of it, from the router's logits on."""
    (tokens, hidden), (experts, both, _) = x.shape, w1.shape
    pairs = tokens * topk
    weights, chosen = torch.topk(logits.float().softmax(-1), topk)
    weights = weights / weights.sum(-1, keepdim=True)
    side = next(s for s in _SIDES if pairs / experts <= s or s == _SIDES[-1])
    place, owner, used = _aligned(chosen.flatten(), experts, side)
    first, gated = x.new_empty(pairs, both), x.new_empty(pairs, both // 2)
    _multiply(x, w1, first, weights, (place, owner, used), topk, False, side)
    _gated[(pairs, triton.cdiv(both // 2, 1024))](first, gated, both // 2, BLOCK=1024)
    last = x.new_empty(pairs, hidden)
    _multiply(gated, w2, last, weights, (place, owner, used), 1, True, side)
    return last.view(tokens, topk, hidden).sum(1)


def _multiply(x: Any, w: Any, out: Any, factor: Any, cut: Any, chosen: int, weighted: bool, side: int) -> None:
    place, owner, used = cut
    (_, n, k), tiles = w.shape, len(owner)
    _product[lambda given: (tiles * triton.cdiv(n, given["COLUMNS"]),)](
        x, w, out, factor, place, owner, used, n, k, len(out), tiles, CHOSEN=chosen, WEIGHTED=weighted, ROWS=side
    )


def _aligned(flat: Any, experts: int, side: int) -> Any:
    """Pairs in the order of experts, each expert's padded to whole tiles, the expert of each tile, and their end."""
    pairs = len(flat)
    most = (pairs + min(experts, pairs) * (side - 1)) // side
    order = flat.sort(stable=True)
    counts = torch.zeros(experts, dtype=torch.long, device=flat.device).scatter_add_(0, flat, torch.ones_like(flat))
    wide = (counts + side - 1) // side * side
    ends, begins = wide.cumsum(0), counts.cumsum(0) - counts
    place = flat.new_full((most * side,), pairs, dtype=torch.int32)
    spot = (ends - wide)[order.values] + torch.arange(pairs, device=flat.device) - begins[order.values]
    place[spot] = order.indices.int()
    owner = torch.searchsorted(ends, torch.arange(most, device=flat.device) * side, right=True).clamp_max(experts - 1)
    return place, owner.int(), ends[-1:].int()
