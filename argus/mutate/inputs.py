"""Arrays of the sizes that a kernel is tried at."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from argus.ir.nodes import Kernel, Scalar
from argus.simulate.numeric import carrier, round_to
from argus.simulate.sizes import FLOAT, contents_range, shape_of

SEED = 7


def arguments(kernel: Kernel, values: Mapping[str, int]) -> dict[str, NDArray[Any] | int | float]:
    """A value for every parameter at admissible sizes: contiguous arrays, the same ones for the same sizes.

    Floats are eighths in [-4, 4], so that sums are exact; integers are within their declared range, else 1 to 6.
    """
    rng = np.random.default_rng(SEED)
    result: dict[str, NDArray[Any] | int | float] = {}
    for p in kernel.params:
        if isinstance(p, Scalar):
            result[p.name] = FLOAT if p.dtype.is_float else values[p.name]
        elif p.dtype.is_float:
            result[p.name] = round_to(rng.integers(-32, 33, shape_of(p, values)) / 8, p.dtype)
        else:
            low, high = contents_range(kernel, p, values) or (1, 7)
            result[p.name] = rng.integers(low, max(high, low + 1), shape_of(p, values)).astype(carrier(p.dtype))
    return result
