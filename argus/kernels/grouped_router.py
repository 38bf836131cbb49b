"""A router that chooses experts by groups and with a bias, as DeepSeek-V3 has it.

A token's *scores* are the softmax or the sigmoid of its logits; by score and bias together, its *choice*, experts are
chosen, and by scores alone they are weighted. With groups, the best groups are found first, by the sum of their two
greatest choices (by the greatest one without a bias), and experts of other groups are left out.

Choices and groups' scores are rounded numbers, and order must not depend on how: so each is written to memory by one
launch and ordered by the next, as integers (`argus.kernels.topk.key`). The last bits of such a key hold its column, so
choices that agree in their first 24 - log2(columns) bits count as equal, and the first of them is taken.
"""

from __future__ import annotations

import argus
import argus.language as al
from argus.kernels.exponentials import LOG2E
from argus.kernels.topk import HIGHEST, LOWEST, number

LEAST = 1e-30
"""What a sum of scores is at least: sigmoids may all be 0."""


@argus.func
def ordered(x, column, SPAN):
    """Return an integer that sorts as the first bits of x do, with SPAN - 1 - column in the last bits."""
    return (al.sortable(x, al.int32) & -SPAN) | (SPAN - 1 - column)


@argus.func
def score_at(x, t, e, SIGMOID):
    """Return the score of expert e for token t."""
    if SIGMOID:
        result = al.sigmoid(x[t, e].to(al.float32))
    else:
        result = al.exp2((x[t, e] - al.max(lambda n: x[t, n])) * LOG2E) / al.sum(
            lambda n: al.exp2((x[t, n] - al.max(lambda m: x[t, m])) * LOG2E)
        )
    return result


@argus.kernel
def router_scores(
    x: al.Tensor[DTYPE, "T E"],
    bias: al.Tensor[al.float32, "E"] | None,
    scores: al.Tensor[al.float32, "T E"],
    choice: al.Tensor[al.float32, "T E"],
    DTYPE: al.constexpr = al.bfloat16,
    SIGMOID: al.constexpr = True,
    ROWS: al.constexpr = 16,
    BLOCK: al.constexpr = 128,
):
    """Compute `scores`, the softmax or sigmoid of rows of logits, and `choice`, with `bias` added."""
    T, E = x.shape
    al.requires(E <= BLOCK)
    al.spec(scores, lambda t, e: score_at(x, t, e, SIGMOID))
    al.spec(choice, lambda t, e: score_at(x, t, e, SIGMOID) + (0.0 if bias is None else bias[e]))
    rows = al.grid(al.cdiv(T, ROWS)) * ROWS + al.arange(ROWS)[:, None]
    cols = al.arange(BLOCK)
    live = (rows < T) & (cols < E)
    logits = al.load(x[rows, cols], mask=live, other=-float("inf")).to(al.float32)
    if SIGMOID:
        found = al.sigmoid(logits)
    else:
        powers = al.exp2((logits - al.max(logits, axis=1, keep_dims=True)) * LOG2E)
        found = powers / al.sum(powers, axis=1, keep_dims=True)
    al.store(scores[rows, cols], found, mask=live)
    if bias is None:
        al.store(choice[rows, cols], found, mask=live)
    else:
        al.store(choice[rows, cols], found + al.load(bias[cols], mask=cols < E), mask=live)


@argus.func
def two_greatest(choice, p, SPAN):
    """Return the sum of the two greatest choices of row p, of the bits that keys hold."""
    first = al.max(lambda e: ordered(choice[p, e], e, SPAN))
    second = al.max(lambda e: al.where(ordered(choice[p, e], e, SPAN) < first, ordered(choice[p, e], e, SPAN), LOWEST))
    return number(first, SPAN) + number(second, SPAN)


@argus.kernel
def group_scores(
    choice: al.Tensor[al.float32, "P S"],
    groups: al.Tensor[al.float32, "P"],
    BOTH: al.constexpr = True,
    ROWS: al.constexpr = 64,
    BLOCK: al.constexpr = 32,
):
    """Compute `groups[p]`, the sum of the two greatest choices of row p, or (not BOTH) the greatest."""
    P, S = choice.shape
    al.requires((1 < S) & (S <= BLOCK))
    if BOTH:
        al.spec(groups, lambda p: two_greatest(choice, p, BLOCK))
    else:
        al.spec(groups, lambda p: al.max(lambda e: choice[p, e]))
    rows, cols = al.grid(al.cdiv(P, ROWS)) * ROWS + al.arange(ROWS), al.arange(BLOCK)
    found = al.load(choice[rows[:, None], cols], mask=(rows < P)[:, None] & (cols < S), other=-float("inf"))
    if BOTH:
        keys = al.where(cols < S, ordered(found, cols, BLOCK), LOWEST)
        first = al.max(keys, axis=1)
        second = al.max(al.where(keys < first[:, None], keys, LOWEST), axis=1)
        result = number(first, BLOCK) + number(second, BLOCK)
    else:
        result = al.max(found, axis=1)
    al.store(groups[rows], result, mask=rows < P)


@argus.func
def group_key(groups, t, e, SIZE, SPAN):
    """Return the key of the group of expert e."""
    return ordered(groups[t, e // SIZE], e // SIZE, SPAN)


@argus.func
def worst_group(groups, t, KEPT, SPAN):
    """Return the key of the KEPT-th best group of token t."""
    last = HIGHEST
    for _ in al.static_range(KEPT):
        last = al.max(lambda g: al.where(ordered(groups[t, g], g, SPAN) < last, ordered(groups[t, g], g, SPAN), LOWEST))
    return last


@argus.func
def expert_key(x, groups, t, e, worst, SIZE, SPAN):
    """Return the key of expert e; the least of all if its group is not kept."""
    found = ordered(x, e, SPAN)
    if groups is not None:
        found = al.where(group_key(groups, t, e, SIZE, SPAN) >= worst, found, LOWEST)
    return found


@argus.func
def expert_at(choice, groups, t, r, K, KEPT, SIZE, SPAN):
    """Return the r-th best of the experts of token t."""
    worst = 0
    if groups is not None:
        worst = worst_group(groups, t, KEPT, SPAN)
    last = HIGHEST
    result = 0
    for i in al.static_range(K):
        last = al.max(
            lambda e: al.where(
                expert_key(choice[t, e], groups, t, e, worst, SIZE, SPAN) < last,
                expert_key(choice[t, e], groups, t, e, worst, SIZE, SPAN),
                LOWEST,
            )
        )
        result = al.where(r == i, last, result)
    return SPAN - 1 - (result & (SPAN - 1))


@argus.kernel
def best_experts(
    choice: al.Tensor[al.float32, "T E"],
    groups: al.Tensor[al.float32, "T G"] | None,
    experts: al.Tensor[al.int32, "T K", "K 1"],
    K: al.constexpr = 8,
    KEPT: al.constexpr = 4,
    SIZE: al.constexpr = 32,
    ROWS: al.constexpr = 16,
    BLOCK: al.constexpr = 256,
    SPAN: al.constexpr = 256,
    GROUPS: al.constexpr = 8,
):
    """Compute `experts[t, :]`: those of the K greatest choices of row t, in groups of SIZE of which the KEPT best are
    kept."""
    T, E = choice.shape
    al.requires((K <= E) & (E <= BLOCK))
    al.spec(experts, lambda t, r: expert_at(choice, groups, t, r, K, KEPT, SIZE, SPAN))
    rows, cols = al.grid(al.cdiv(T, ROWS)) * ROWS + al.arange(ROWS)[:, None], al.arange(BLOCK)
    live = (rows < T) & (cols < E)
    keys = al.where(cols < E, ordered(al.load(choice[rows, cols], mask=live), cols, SPAN), LOWEST)
    if groups is not None:
        G, g = groups.shape[1], al.arange(GROUPS)
        al.requires((G * SIZE == E) & (KEPT <= G) & (G <= GROUPS) & (K <= KEPT * SIZE))
        best = al.load(groups[rows, g], mask=(rows < T) & (g < G))
        group_keys = al.where(g < G, ordered(best, g, SPAN), LOWEST)
        worst = al.full((ROWS, 1), HIGHEST, al.int32)
        for _ in al.static_range(KEPT):
            worst = al.max(al.where(group_keys < worst, group_keys, LOWEST), axis=1, keep_dims=True)
        own = al.load(groups[rows, cols // SIZE], mask=live)
        keys = al.where(ordered(own, cols // SIZE, SPAN) >= worst, keys, LOWEST)
    last = al.full((ROWS, 1), HIGHEST, al.int32)
    found = al.zeros((ROWS, K), al.int32)
    for i in al.static_range(K):
        last = al.max(al.where(keys < last, keys, LOWEST), axis=1, keep_dims=True)
        found = al.where(al.arange(K) == i, last, found)
    al.store(experts[rows, al.arange(K)], SPAN - 1 - (found & (SPAN - 1)), mask=rows < T)


@argus.kernel
def expert_weights(
    scores: al.Tensor[al.float32, "T E"],
    experts: al.Tensor[al.int32, "T K", "K 1"],
    weights: al.Tensor[al.float32, "T K", "K 1"],
    scale: al.float32,
    SHARED: al.constexpr = True,
    CHOICES: al.constexpr = 8,
    ROWS: al.constexpr = 64,
    BLOCK: al.constexpr = 8,
):
    """Compute `weights[t, r] = scores[t, experts[t, r]] * scale`; SHARED: over their sum as well."""
    T, K = weights.shape
    al.requires(K == CHOICES)
    al.requires(al.in_range(experts, 0, scores.shape[1]))
    if SHARED:
        al.spec(
            weights,
            lambda t, r: (
                scores[t, experts[t, r]] / al.maximum(al.sum(lambda j: scores[t, experts[t, j]]), LEAST) * scale
            ),
        )
    else:
        al.spec(weights, lambda t, r: scores[t, experts[t, r]] * scale)
    rows, r = al.grid(al.cdiv(T, ROWS)) * ROWS + al.arange(ROWS)[:, None], al.arange(BLOCK)
    live = (rows < T) & (r < K)
    found = al.load(scores[rows, al.load(experts[rows, r], mask=live)], mask=live)
    if SHARED:
        found = found / al.maximum(al.sum(found, axis=1, keep_dims=True), LEAST)
    al.store(weights[rows, r], found * scale, mask=live)
