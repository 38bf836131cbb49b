"""Logarithms that convert exponentials to powers of two, which are one instruction, and the root of the sigmoid."""

from __future__ import annotations

import argus
import argus.language as al

LN2 = 0.6931471805599453
LOG2E = 1.4426950408889634
MINUS_LOG2E = -1.4426950408889634


@argus.func
def root(x):
    """Return a root whose square is the sigmoid of x. The reciprocal root is one instruction, and a division takes ten
    times as long."""
    return al.rsqrt(1.0 + al.exp2(x * MINUS_LOG2E))
