"""The weights of attention and their gradients, in specifications of the backward pass."""

from __future__ import annotations

import argus
import argus.language as al

LN2 = 0.6931471805599453
LOG2E = 1.4426950408889634


@argus.func
def weight(q, k, lse, b, h, g, i, j, reach, scale, WINDOW):
    """Return the weight of key j in row i of head g among those that share keys. The row sees the keys up to i + reach,
    with WINDOW the last WINDOW of these."""
    score = al.sum(lambda d: q[b, h, g, i, d] * k[b, h, j, d]) * (scale * LN2)
    seen = (j <= i + reach) & ((WINDOW == 0) | (i + reach - WINDOW < j))
    return al.where(seen, al.exp(score - lse[b, h, g, i]), 0.0)


@argus.func
def slope(dy, v, delta, b, h, g, i, j):
    """Return the gradient of that weight, relative to `delta`, the mean of the row."""
    return al.sum(lambda e: dy[b, h, g, i, e] * v[b, h, j, e]) - delta[b, h, g, i]
