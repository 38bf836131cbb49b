"""Scores of attention: the score of a query and a key in the forms that models use, and online maxima of rows."""

from __future__ import annotations

import argus
import argus.language as al

NEVER = -float("inf")
LN2 = 0.6931471805599453
LOG2E = 1.4426950408889634


@argus.func
def raise_top(s, top, scale):
    """Return the row maxima after the scores `s` `[rows, keys]`, where `top` holds the maxima before; the summand that
    makes scaled exponents of base 2 relative to the new maxima; and the factor by which earlier sums shrink.

    Rows that have seen no key yet keep the maximum -inf: their weights are 0, and so is the factor.
    """
    new = al.maximum(top, al.max(s, axis=1))
    shift = al.where(new == NEVER, 0.0, -new * scale)
    return new, shift, al.exp2(al.fma(top, scale, shift))


@argus.func
def unit_of(scale, CAP, SCORE):
    """Return the factor that converts scores to exponents of base 2. For capped scores it is applied after the tangent.
    """
    return LOG2E if SCORE is not None else scale if CAP == 0.0 else CAP * LOG2E


@argus.func
def capped(x, CAP):
    """Return a score limited to the range from -CAP to CAP; a CAP of 0 means no limit."""
    return x if CAP == 0.0 else CAP * al.tanh(x * (1.0 / CAP))


@argus.func
def changed(x, b, h, i, j, CAP, SCORE):
    """Return a score in another form: capped, and then changed by SCORE."""
    return capped(x, CAP) if SCORE is None else SCORE(capped(x, CAP), b, h, i, j)


@argus.func
def score(q, k, b, h, t, i, j, reach, scale, GROUP, PARTS, SPAN, WINDOW, CAP, SCORE, MASK):
    """Return the score of query i of part t and key j, -inf for keys that i cannot see. `scale` includes log2(e)."""
    return al.where(
        (j <= i + reach)
        & ((PARTS == 1) | (t * SPAN <= j) & (j < t * SPAN + SPAN))
        & ((WINDOW == 0) | (i + reach - WINDOW < j))
        & (True if MASK is None else MASK(b, h, i, j)),
        changed(
            al.sum(lambda d: q[b, h, i, d] * k[b, h // GROUP, j, d]) * (scale * LN2),
            b,
            h,
            i,
            j,
            CAP,
            SCORE,
        ),
        NEVER,
    )


@argus.func
def edges(D, WIDTH):
    """Return the dimensions in which a tile of rows may exceed the tensor: its width too if D differs from WIDTH."""
    return (0,) if D == WIDTH else (0, 1)
