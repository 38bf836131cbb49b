"""Philox 4x32 in Python's integers, beside which kernels that make random numbers are held."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_TIMES = (0xD2511F53, 0xCD9E8D57)
_BUMPS = (0x9E3779B9, 0xBB67AE85)


def philox(seed: int, counters: NDArray[np.int64]) -> NDArray[np.int64]:
    """The first number for each counter (i, 0, 0, 0) and the key (seed, 0), after ten rounds."""
    return np.array([_first((seed % 2**32, 0), (int(i), 0, 0, 0)) for i in counters], dtype=np.int64)


def _first(key: tuple[int, int], counter: tuple[int, int, int, int]) -> int:
    for turn in range(10):
        c0, c1, c2, c3 = counter
        k0, k1 = ((k + turn * bump) % 2**32 for k, bump in zip(key, _BUMPS, strict=True))
        low, high = _TIMES[0] * c0, _TIMES[1] * c2
        counter = ((high >> 32) ^ c1 ^ k0, high % 2**32, (low >> 32) ^ c3 ^ k1, low % 2**32)
    return counter[0]
