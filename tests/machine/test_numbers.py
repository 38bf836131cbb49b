"""Functions of lanes beside NumPy: the steps of a division, which together have a result to check."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.machine.gfx942 import numbers

COUNT = 20_000


def divided(above: Any, below: Any) -> Any:
    """Return above / below as LLVM divides: operands are scaled, a quotient is refined, scaled back and mended."""
    fused, one = numbers.fused, np.float32(1)
    scaled_below, _ = numbers.division_scale(below, below, above)
    scaled_above, flag = numbers.division_scale(above, below, above)
    inverse = numbers.reciprocal(scaled_below)
    inverse = fused(fused(-scaled_below, inverse, one), inverse, inverse)
    quotient = (scaled_above * inverse).astype(np.float32)
    quotient = fused(fused(-scaled_below, quotient, scaled_above), inverse, quotient)
    rest = fused(-scaled_below, quotient, scaled_above)
    return numbers.division_end(numbers.division_step(rest, inverse, quotient, flag), below, above)


def test_divisions_of_any_numbers() -> None:
    """Random bits: normal and subnormal numbers far apart, infinities, and what is no number."""
    bits = np.random.default_rng(0).integers(0, 2**32, (2, COUNT), np.uint32)
    bits[:, :500] &= np.uint32(0x807FFFFF)  # subnormal numbers and zeros
    above, below = bits.view(np.float32)
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(divided(above, below), above / below)
        np.testing.assert_array_equal(divided(above, above[::-1]), above / above[::-1])
