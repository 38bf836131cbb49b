"""The values that launches leave in tensors: whether they are stored or added, and how they are compared."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from argus.ir.access import Mode, relations
from argus.ir.nodes import Accumulate, Kernel
from argus.ir.types import DType
from argus.ir.visit import walk as statements
from argus.programs.inputs import Array


class Held:
    """A tensor as `Reference` reads it: its contents before the kernel, by row-major index."""

    def __init__(self, values: Array, dtype: DType) -> None:
        self.values, self.shape, self.dtype, self.contents = values, values.shape, dtype, self

    def initial(self, index: Array) -> Array:
        """Return the elements at row-major indices."""
        found: Array = self.values.reshape(-1)[index]
        return found


def accumulates(kernel: Kernel, output: str) -> bool | None:
    """Return True if a kernel adds its specified values to an output, False if it stores them, and None if it does
    both."""
    modes = {
        (r.mode, s.op if isinstance(s, Accumulate) else "")
        for s in statements(kernel.body)
        for r in relations(s)
        if r.obj == output and r.mode is not Mode.READ
    }
    if modes == {(Mode.ACCUMULATE, "add")}:
        return True
    return False if all(mode is Mode.WRITE for mode, _ in modes) else None


def differs(ours: Array, theirs: Array) -> NDArray[np.bool_]:
    """Return the elements whose difference is larger than float64 arithmetic explains."""
    if ours.dtype.kind != "f":
        return np.asarray(ours != theirs)
    with np.errstate(all="ignore"):
        finite = np.isfinite(ours) & np.isfinite(theirs)
        scale = np.abs(np.where(finite, theirs, 0)).max(initial=0)
        near = np.abs(ours - theirs) <= 1e-9 * np.abs(theirs) + 1e-9 * scale
    same = (ours == theirs) | (np.isnan(ours) & np.isnan(theirs))
    return np.asarray(~(same | near))
