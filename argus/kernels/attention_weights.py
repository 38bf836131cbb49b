"""The weights of attention and the gradients of its operands, in specifications of the backward pass."""

from __future__ import annotations

import argus
import argus.language as al
from argus.kernels.exponentials import LN2


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


@argus.func
def value_gradient(q, k, dy, lse, b, h, j, e, reach, scale, WINDOW):
    """Return the gradient of element e of value j."""
    return al.sum(
        lambda g: al.sum(lambda i: weight(q, k, lse, b, h, g, i, j, reach, scale, WINDOW) * dy[b, h, g, i, e])
    )


@argus.func
def key_gradient(q, k, v, dy, lse, delta, b, h, j, d, reach, scale, WINDOW):
    """Return the gradient of element d of key j."""
    return al.sum(
        lambda g: al.sum(
            lambda i: (
                weight(q, k, lse, b, h, g, i, j, reach, scale, WINDOW)
                * slope(dy, v, delta, b, h, g, i, j)
                * q[b, h, g, i, d]
            )
        )
    ) * (scale * LN2)


@argus.func
def query_gradient(q, k, v, dy, lse, delta, b, h, g, i, d, reach, scale, WINDOW):
    """Return the gradient of element d of row i, without the scores' scale."""
    return al.sum(
        lambda j: (
            weight(q, k, lse, b, h, g, i, j, reach, scale, WINDOW) * slope(dy, v, delta, b, h, g, i, j) * k[b, h, j, d]
        )
    )
