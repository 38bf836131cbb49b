"""Scores of attention: the score of a query and a key in the forms that models use, and online maxima of rows."""

from __future__ import annotations

import argus
import argus.language as al
from argus.kernels.exponentials import LN2, LOG2E

NEVER = -float("inf")


@argus.func
def raise_top(s, top, scale):
    """Return the row maxima after the scores `s` `[rows, keys]`, where `top` holds the maxima before; the summand that
    makes scaled exponents of base 2 relative to the new maxima; and the factor by which earlier sums shrink.

    Rows that have seen no key yet keep the maximum -inf: their weights are 0, and so is the factor. A score that is NaN
    need not count here, because its weight is NaN, and with it the row's sum.
    """
    new = al.without_nan(al.maximum(top, al.max(al.without_nan(s), axis=1)))
    shift = al.where(new == NEVER, 0.0, -new * scale)
    return new, shift, al.exp2(al.fma(top, scale, shift))


@argus.func
def unit_of(scale, CAP, OTHER):
    """Return the factor that converts scores to exponents of base 2. For capped scores it is applied after the tangent;
    OTHER scores are whole."""
    return LOG2E if OTHER else scale if CAP == 0.0 else CAP * LOG2E


@argus.func
def capped(x, CAP):
    """Return a score limited to the range from -CAP to CAP; a CAP of 0 means no limit."""
    return x if CAP == 0.0 else CAP * al.tanh(x * (1.0 / CAP))


@argus.func
def sloped(x, slopes, h, away):
    """Return a score less the slope of its head times the distance of the key (ALiBi)."""
    return x if slopes is None else x + slopes[h] * away.to(al.float32)


@argus.func
def biased(x, bias, b, h, i, j):
    """Return a score with its bias."""
    return x if bias is None else x + bias[b, h, i, j]


@argus.func
def changed(x, b, h, i, j, SCORE):
    """Return a score as SCORE makes it."""
    return x if SCORE is None else SCORE(x, b, h, i, j)


@argus.func
def score(q, k, slopes, bias, b, h, t, i, j, reach, scale, GROUP, PARTS, SPAN, WINDOW, CAP, SCORE, MASK):
    """Return the score of query i of part t and key j, -inf for keys that i cannot see. `scale` includes log2(e)."""
    return al.where(
        (j <= i + reach)
        & ((PARTS == 1) | (t * SPAN <= j) & (j < t * SPAN + SPAN))
        & ((WINDOW == 0) | (i + reach - WINDOW < j))
        & (True if MASK is None else MASK(b, h, i, j)),
        changed(
            biased(
                sloped(
                    capped(al.sum(lambda d: q[b, h, i, d] * k[b, h // GROUP, j, d]) * (scale * LN2), CAP),
                    slopes,
                    h,
                    j - (i + (k.shape[2] - q.shape[2])),
                ),
                bias,
                b,
                h,
                i,
                j,
            ),
            b,
            h,
            i,
            j,
            SCORE,
        ),
        NEVER,
    )


@argus.func
def odds(q, k, sinks, slopes, bias, b, h, t, i, reach, scale, GROUP, PARTS, SPAN, WINDOW, CAP, SCORE, MASK):
    """Return the sum of the exponentials of all scores of query i of part t, and of the head's sink."""
    return al.sum(
        lambda j: al.exp(
            score(q, k, slopes, bias, b, h, t, i, j, reach, scale, GROUP, PARTS, SPAN, WINDOW, CAP, SCORE, MASK)
        )
    ) + al.exp(sinks[h])


@argus.func
def edges(D, WIDTH):
    """Return the dimensions in which a tile of rows may exceed the tensor: its width too if D differs from WIDTH."""
    return (0,) if D == WIDTH else (0, 1)


@argus.func
def cut(M, N, part, batch, head, m0, ends, whole, stop, BLOCK_M, BLOCK_N, PARTS, SPAN, WINDOW, RANGE):
    """Return the first key that a program reads, and its limits of keys cut to its part, to RANGE and to the WINDOW."""
    begin = 0
    if PARTS > 1:
        begin = part * SPAN
        whole, stop = al.minimum(whole, begin + SPAN), al.minimum(stop, begin + SPAN)
        ends = al.minimum(ends, begin + SPAN)
    if RANGE is not None:
        low, high = RANGE(batch, head, m0, al.minimum(m0 + BLOCK_M, M) - 1)
        begin = al.maximum(begin, al.minimum(al.maximum(low, 0), N) // BLOCK_N * BLOCK_N)
        stop = al.minimum(stop, high)
    if WINDOW:  # the first row's first key, in whole blocks
        begin = al.maximum(begin, (m0 + (N - M) + 1 - WINDOW) // BLOCK_N * BLOCK_N)
    return begin, ends, whole, stop
