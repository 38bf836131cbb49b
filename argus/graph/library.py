"""The rule by which products are left to PyTorch's library, which transposes a factor while it loads it.

TF32 instructions read factors whose terms are contiguous. Kernels copy other factors first. The fewer operations a
product has for each element of such a factor, the more the copy counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from argus.ir.machine import H200

LEAST_PRODUCT, LEAST_DEPTH = 128, 32
"""Rows and columns of a product, and number of its terms, at which copying a factor costs less than it saves."""

_MOST_COPIED = 0.15
"""The largest ratio of the time of copies to that of the product itself."""


def by_terms(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Return True if the last dimension is contiguous, and rows of it are whole vectors of 16 bytes."""
    return shape[-1] % 4 == 0 and strides[-1] == 1 and all(s % 4 == 0 for s in strides[:-1])


def is_large(rows: int, terms: int, columns: int) -> bool:
    """Return True for a product for which a factor may be copied."""
    return min(rows, columns) >= LEAST_PRODUCT and terms >= LEAST_DEPTH


Factor = tuple[Sequence[int], Sequence[int]]
"""The shape and the strides of a factor. Its terms are the last dimension."""


def copies_too_much(a: Factor, b: Factor) -> bool:
    """Return True if copies of factors take so much of a float32 product that it is left to the library.

    Factors whose rows are no whole vectors are copied in any case: the library is slow with them."""
    (rows, terms), columns = a[0][-2:], b[0][-2]
    if not is_large(rows, terms, columns) or terms % 4:
        return False
    batch = prod(a[0][:-2])
    read = [4 * batch * terms * size for size in (rows, columns)]
    copied = sum(2 * size for size, factor in zip(read, (a, b), strict=True) if not by_terms(*factor))
    flops = dict(H200.matrix_flops)[32] * H200.multiprocessors * H200.clock_hz
    bytes_s = H200.memory_bytes_s
    product = max(2 * batch * rows * terms * columns / flops, (sum(read) + 4 * batch * rows * columns) / bytes_s)
    return copied / bytes_s > _MOST_COPIED * product
