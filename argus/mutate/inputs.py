"""Arrays for the sizes at which a kernel is tried."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from argus.ir.nodes import Kernel, Scalar
from argus.simulate.index_contents import Declared, declared, drawn
from argus.simulate.numeric import carrier, round_to
from argus.simulate.sizes import FLOAT, shape_of

SEED = 7


def arguments(kernel: Kernel, values: Mapping[str, int]) -> dict[str, NDArray[Any] | int | float]:
    """Return a value for every parameter at admissible sizes. Arrays are contiguous, and equal sizes give equal arrays.

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
            what = declared(kernel, p, values) or Declared(1, 7)
            found = drawn(what, shape_of(p, values), lambda n: rng.integers(0, 2**62, n).astype(np.uint64), {})
            assert found is not None  # Admissible sizes leave index tensors some contents.
            result[p.name] = found.astype(carrier(p.dtype))
    return result
