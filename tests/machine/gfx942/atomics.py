"""Updates of memory that no other access comes between: one row each (CDNA3 ISA, section 12.15)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Bytes = Any
_ORDER: dict[str, tuple[Any, Callable[[Any, Any], Any]]] = {
    "add": (np.uint32, np.add),
    "sub": (np.uint32, np.subtract),
    "smin": (np.int32, np.minimum),
    "smax": (np.int32, np.maximum),
    "umin": (np.uint32, np.minimum),
    "umax": (np.uint32, np.maximum),
    "and": (np.uint32, np.bitwise_and),
    "or": (np.uint32, np.bitwise_or),
    "xor": (np.uint32, np.bitwise_xor),
    "swap": (np.uint32, lambda _old, new: new),
    "add_f32": (np.float32, np.add),
    "add_x2": (np.uint64, np.add),
    "smin_x2": (np.int64, np.minimum),
    "smax_x2": (np.int64, np.maximum),
    "umin_x2": (np.uint64, np.minimum),
    "umax_x2": (np.uint64, np.maximum),
    "swap_x2": (np.uint64, lambda _old, new: new),
    "add_f64": (np.float64, np.add),
}


def update(kind: str) -> tuple[int, Callable[[Bytes, Bytes], Bytes]]:
    """Return the bytes of an update, and the function from the old bytes and the operand's to the new ones."""
    if kind == "cmpswap":  # the new word, then the one that is expected
        return 4, lambda old, given: given[:4] if (old == given[4:]).all() else old
    dtype, function = _ORDER[kind]
    size = np.dtype(dtype).itemsize
    return size, lambda old, given: function(old.view(dtype), given[:size].view(dtype)).view(np.uint8)
