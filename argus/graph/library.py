"""The rules by which products, and gradients of a convolution's weights, are left to PyTorch's library.

TF32 instructions read factors whose terms are contiguous. The library transposes a factor while it loads it; kernels
copy other factors first. The fewer operations a product has for each element of such a factor, the more the copy
counts. The gradient of weights copies the image and the results' gradients, unless there is one tap.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
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
    bytes_s = H200.memory_bytes_s
    product = max(2 * batch * rows * terms * columns / _peak(32), (sum(read) + 4 * batch * rows * columns) / bytes_s)
    return copied / bytes_s > _MOST_COPIED * product


@dataclass(frozen=True)
class WeightGradient:
    """The gradient of a convolution's weights: the bytes of the image and of the results' gradients, their elements'
    bits, and the number of products.

    `dims`: those of places. `depthwise`: with a filter for each channel. `last`: both tensors have their channels last.
    `copied`: a kernel copies both, for each remainder of places by the strides (`parts`)."""

    read: int
    bits: int
    products: int
    dims: int
    depthwise: bool
    last: bool
    copied: bool
    parts: int

    def is_left(self) -> bool:
        """Return True if the library is expected to be faster than kernels. Rates are those of one H200."""
        return self._of_kernels() > self._of_library()

    def _of_kernels(self) -> float:
        copies = 2 * self.read / _COPIED_BYTES_S + 2 * self.parts * _LAUNCH if self.copied else 0.0
        rate = _DEPTHWISE if self.depthwise else _OF_PEAK[self.dims > 2] * _peak(self.bits)
        return copies + max(2 * self.products / rate, self.read / _READ_BYTES_S) + (1 + self.copied) * _LAUNCH

    def _of_library(self) -> float:
        if self.depthwise:
            return 2 * self.products / (_LIBRARY_DEPTHWISE_LAST if self.last else _LIBRARY_DEPTHWISE) + _LAUNCH
        turned = (not self.last) + (self.bits == 32)  # copies of both: TF32 needs terms that are contiguous
        product = 2 * self.products / (_LIBRARY_OF_PEAK[self.dims > 2] * _peak(self.bits))
        copies = turned * (2 * self.read / _READ_BYTES_S + 2 * _LAUNCH)
        return copies + max(product, self.read / _READ_BYTES_S) + 2 * _LAUNCH


@dataclass(frozen=True)
class ImageGradient:
    """The gradient of a convolution's image, with strides: bytes of the results' gradients (`read`) and of the image's
    (`made`), the elements' bits, the number of products, and how many times as many a kernel computes, because phases
    have zeros. `last`: tensors have their channels last."""

    read: int
    made: int
    bits: int
    products: int
    times: float
    last: bool

    def is_left(self) -> bool:
        """Return True if the library is expected to be faster than kernels. Rates are those of one H200."""
        rate = _peak(self.bits)
        copies = (2 * self.read + self.made) / _COPIED_BYTES_S + 2 * _LAUNCH
        own = copies + 2 * self.products * self.times / (_OF_PEAK[0] * rate)
        moved = (self.read + self.made) / _READ_BYTES_S
        copied = ((not self.last) + (self.bits == 32)) * (2 * moved + 2 * _LAUNCH)
        return own > copied + max(2 * self.products / (_LIBRARY_OF_PEAK[0] * rate), moved) + _LAUNCH


def _peak(bits: int) -> float:
    return dict(H200.matrix_flops)[bits] * H200.multiprocessors * H200.clock_hz


_COPIED_BYTES_S, _READ_BYTES_S = 2.4e12, 3.2e12
"""Bytes a second of copies that change the order of dimensions, and of plain reads."""
_OF_PEAK, _LIBRARY_OF_PEAK = (0.45, 0.05), (0.5, 0.09)
"""The parts of the peak rate that products of such gradients reach: of images, and of volumes."""
_DEPTHWISE, _LIBRARY_DEPTHWISE, _LIBRARY_DEPTHWISE_LAST = 2.3e12, 1.3e12, 1.6e13
"""Operations a second of depthwise gradients: of kernels, of the library, and of the library with channels last."""
_LAUNCH = 3e-6
"""Seconds of a launch."""
